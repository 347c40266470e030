"""What every simulation needs."""

import logging

import pytest
import structlog


@pytest.fixture(autouse=True)
def _quiet():
    """Thousands of replicas die here; none of them has anything to say."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()

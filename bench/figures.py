"""Figures, the goals they are held against, and the little arithmetic between samples and figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal


class InvalidRunError(Exception):
    """The run did not do what it claims to measure, so it has no figures."""


@dataclass(frozen=True)
class Goal:
    """What a figure should reach."""

    kind: Literal[">=", "<="]
    bound: float

    def met(self, value: float) -> bool:
        """Whether the figure reaches it."""
        return value >= self.bound if self.kind == ">=" else value <= self.bound


@dataclass(frozen=True)
class Figure:
    """One measured figure; without a goal it explains another one."""

    name: str
    value: float
    unit: str
    goal: Goal | None = None


@dataclass(frozen=True)
class Result:
    """What a benchmark found."""

    benchmark: str
    title: str
    figures: Sequence[Figure]
    samples: dict[str, object] = field(default_factory=dict)
    """What the figures were made of, round by round."""


def at_least(bound: float) -> Goal:
    """A goal that is reached from below."""
    return Goal(">=", bound)


def at_most(bound: float) -> Goal:
    """A goal that is not to be passed."""
    return Goal("<=", bound)


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` (0..1] of the samples do not pass (nearest rank).

    Raises:
        ValueError: there are no samples, or the share is none.
    """
    if not samples or not 0 < share <= 1:
        raise ValueError(
            f"no percentile {share} of {len(samples)} samples; expected 0 < share <= 1 and a sample"
        )
    return sorted(samples)[math.ceil(share * len(samples)) - 1]


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two in the middle.

    Raises:
        ValueError: there are no samples.
    """
    if not samples:
        raise ValueError("no median of no samples")
    ordered = sorted(samples)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2

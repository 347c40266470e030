"""The configuration file: its schema, and the one way to read it.

    text ──document──▶ plain values ──decode──▶ Draft ──checks──▶ Config ──secrets──▶ Loaded

Each step collects faults instead of stopping at the first, so a file is refused once, with everything that is wrong.
"""

from gateway.config.faults import ConfigError, Fault
from gateway.config.kinds import Bind
from gateway.config.load import Loaded, load_config, parse_config
from gateway.config.schema import Config, TenantLimits
from gateway.config.secrets import Secrets
from gateway.config.upstreams import Upstream

__all__ = [
    "Bind",
    "Config",
    "ConfigError",
    "Fault",
    "Loaded",
    "Secrets",
    "TenantLimits",
    "Upstream",
    "load_config",
    "parse_config",
]

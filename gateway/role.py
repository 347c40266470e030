"""What a replica does of the whole: take requests, run jobs, or both."""

from typing import Final, Literal, get_args

from gateway.config import Config, ConfigError
from gateway.config.faults import Fault

Role = Literal["all", "api", "worker"]
"""all: everything; api: the public HTTP side without dispatchers; worker: dispatchers without a public bind."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)


def require_role(config: Config, role: Role) -> None:
    """Refuse to do a part alone where nobody could do the rest.

    Raises:
        ConfigError: the store is one process's own.
    """
    if role != "all" and config.coordination == "local":
        raise ConfigError(
            (
                Fault(
                    "coordination",
                    f"'local' is one process that does everything; --role {role} needs 'redis'",
                ),
            )
        )

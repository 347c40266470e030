from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.check_config import check_config
from gateway.cli.serve import serve

EXAMPLE = Path(__file__).parents[2] / "deploy" / "gateway.example.yaml"


def test_a_valid_file_exits_with_0():
    """The example is valid, and its warnings are said (GW-1)."""
    result = CliRunner().invoke(check_config, [str(EXAMPLE)])
    assert result.exit_code == 0
    assert "valid, 5 upstreams" in result.stdout
    assert "azure-di" in result.stderr


def test_an_invalid_file_exits_with_2_and_all_faults(tmp_path):
    """Every fault has its line (GW-1)."""
    file = tmp_path / "gateway.yaml"
    file.write_text("server: {max_runing: 1}\nupstreams: []\n")
    result = CliRunner().invoke(check_config, [str(file)])
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"{file}: 2 faults",
        "  server.max_runing: unknown key; did you mean 'max_running'?",
        "  upstreams: expected a list of at least 1, got 0",
    ]


def test_a_missing_file_exits_with_2(tmp_path):
    """A file that is not there is refused by name."""
    result = CliRunner().invoke(check_config, [str(tmp_path / "none.yaml")])
    assert result.exit_code == 2
    assert "cannot read" in result.stderr


def test_an_unset_secret_is_a_warning(tmp_path, upstream, monkeypatch):
    """A secret that is named but unset does not make the file invalid."""
    monkeypatch.delenv("SLUICEGATE_TEST_KEY", raising=False)
    file = tmp_path / "gateway.yaml"
    file.write_text(upstream.replace("submit_path", "api_key_env: SLUICEGATE_TEST_KEY\n    submit_path"))
    result = CliRunner().invoke(check_config, [str(file)])
    assert result.exit_code == 0
    assert (
        "warning: upstreams[0].api_key_env: the environment variable SLUICEGATE_TEST_KEY is not set"
        in result.stderr
    )


@pytest.mark.parametrize(("role", "code"), [("all", 0), ("api", 2), ("worker", 2), ("boss", 2)])
def test_a_role_needs_a_shared_store(tmp_path, upstream, role, code):
    """One process with its own store does everything; a part alone needs coordination redis (90)."""
    file = tmp_path / "gateway.yaml"
    file.write_text(upstream)
    result = CliRunner().invoke(check_config, [str(file), "--role", role])
    assert result.exit_code == code
    if role in {"api", "worker"}:
        assert f"--role {role} needs 'redis'" in result.stderr
        served = CliRunner().invoke(serve, ["--config", str(file), "--role", role])
        assert served.exit_code == 2
        assert f"--role {role} needs 'redis'" in served.stderr
    file.write_text(f"coordination: redis\n{upstream}")
    shared = CliRunner().invoke(check_config, [str(file), "--role", role])
    assert shared.exit_code == (2 if role == "boss" else 0)

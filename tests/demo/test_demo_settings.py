"""The configuration that the demo writes is one that the gateway takes."""

from pathlib import Path

from gateway.config import load_config
from gateway.demo.settings import MODEL, write_config


def test_written_configuration_is_valid(tmp_path: Path) -> None:
    """It loads without a fault, names the OCR server as its one upstream, and keeps everything in its folder."""
    loaded = load_config(write_config(tmp_path, "http://127.0.0.1:9003"), {})
    [upstream] = loaded.config.upstreams
    assert upstream.models == (MODEL,)
    assert [endpoint.url for endpoint in upstream.endpoints] == ["http://127.0.0.1:9003"]
    assert Path(loaded.config.local.data_dir).is_relative_to(tmp_path)

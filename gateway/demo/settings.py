"""The demo's configuration: an embedded ledger and one upstream, all below one folder that goes away at the end."""

from pathlib import Path
from typing import Final

MODEL: Final = "rapidocr"

AUDIT_FILE: Final = "audit.jsonl"

# Port 0: the system chooses free ones, so the demo runs beside anything. Relative paths count from the file's folder.
_TEMPLATE: Final = """\
server:
  bind: 127.0.0.1:0
  admin_bind: 127.0.0.1:0
coordination: local
local:
  data_dir: data
audit:
  sinks: [{{type: file, path: {audit_file}}}]
  spool_dir: audit-spool
upstreams:
  - name: {model}
    type: ocr-http
    adapter: sync-http
    class: on_prem
    endpoints: [{{url: "{ocr_url}", slots: 1}}]
    models: [{model}]
    submit_path: /ocr
    forward: multipart
    file_field: image_file
    timeout_s: 120
"""


def write_config(folder: Path, ocr_url: str) -> Path:
    """Write `gateway.yaml` into the folder, with the OCR server at `ocr_url` as upstream, and give its path."""
    path = folder / "gateway.yaml"
    path.write_text(_TEMPLATE.format(model=MODEL, ocr_url=ocr_url, audit_file=AUDIT_FILE), encoding="utf-8")
    return path

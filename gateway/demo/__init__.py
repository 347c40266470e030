"""The demo's parts: a sample scan, a real OCR server as upstream, and the story that `sluicegate demo` tells.

scan        the page, drawn                     settings   the configuration that is written for it
ocr_server  the engine as a child process       reading    from its answer to lines of text
client      submit, follow, fetch               narration  what is printed
errors      why it cannot go on

Nothing outside `gateway.cli.demo` imports this package; it needs the extra `demo` (see `require_demo_extra`).
"""

"""The demo's story: the whole path on a real document, in one process and one temporary folder.

block                          what ends it
├─ temporary folder            removed last, with ledger, logs, scan and audit file
├─ signal watcher              SIGINT or SIGTERM cancels all that follows; each part stops in its own bounds
├─ OCR server (child process)  terminated when the gateway in front of it has ended
├─ gateway (embedded ledger)   cancelled when the story is over
└─ the story                   submit, follow, print; then, without --once, serve until a signal
"""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from gateway.config import load_config
from gateway.demo.client import fetch_result, find_audit_event, follow, open_client, submit
from gateway.demo.narration import Narration
from gateway.demo.ocr_server import running_ocr_server
from gateway.demo.reading import recognised_lines
from gateway.demo.scan import FILE_NAME, MEDIA_TYPE, render_scan
from gateway.demo.settings import AUDIT_FILE, MODEL, write_config
from gateway.main import Serving, serve


async def tell(folder: Path, narration: Narration, once: bool) -> bool:  # noqa: FBT001  # trio.run passes by position
    """Run the demo in `folder`; whether the story was told to its end."""
    told = False
    async with trio.open_nursery() as nursery:
        await nursery.start(_cancel_on_signal, nursery.cancel_scope)
        async with AsyncExitStack() as running:
            with narration.stage("Start a real OCR server (rapidocr-api)"):
                ocr_url = await running.enter_async_context(running_ocr_server(folder))
            with narration.stage("Start the gateway on an embedded ledger"):
                gateway = await running.enter_async_context(_running_gateway(write_config(folder, ocr_url)))
            job_id = await _tell(gateway.public_url, folder, narration)
            told = True
            if not once:
                narration.show_commands(gateway.public_url, gateway.admin_url, job_id, folder / FILE_NAME)
                await trio.sleep_forever()
        nursery.cancel_scope.cancel("demo: the story is over")
    return told


async def _cancel_on_signal(
    scope: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            scope.cancel(f"demo: {signal.Signals(number).name}")


@asynccontextmanager
async def _running_gateway(config: Path) -> AsyncGenerator[Serving]:
    """The gateway in this process while the block lasts."""
    async with trio.open_nursery() as nursery:
        yield await nursery.start(partial(serve, load_config(config, os.environ), signals=False))
        nursery.cancel_scope.cancel("demo: the story is over")


async def _tell(public_url: str, folder: Path, narration: Narration) -> str:
    """Submit the sample scan and show its text, its job and its audit event; the job's id."""
    scan = await trio.to_thread.run_sync(render_scan)
    await trio.Path(folder / FILE_NAME).write_bytes(scan)
    async with open_client(public_url) as client:
        with narration.stage(f"Submit a sample scan ({len(scan) // 1024} KiB) and follow its job") as status:
            created = await submit(client, scan, {"Content-Type": MEDIA_TYPE, "X-Model": MODEL})
            job = await follow(client, created, lambda state: status.update(f"The job is {state['status']}"))
        result = await fetch_result(client, job)
    narration.show_text(recognised_lines(result))
    narration.show_object("The job", {**job, "result": "shown above"})
    event = await find_audit_event(folder / AUDIT_FILE, job["job_id"])
    narration.show_object("Its audit event", event)
    job_id: str = job["job_id"]
    return job_id

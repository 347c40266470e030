"""Memory: documents stream, whatever their size."""

import hashlib

from gateway_process import running, until_all_done, write_config

from adapters.testing.scripts import message
from adapters.testing.stub import Exchange, open_stub_upstream

MIB = 1024 * 1024
CHUNK = bytes(range(256)) * 4096


async def test_process_memory_of_a_large_document(tmp_path):
    """A 100 MiB document goes through, byte for byte, with at most 32 MiB more resident memory (GW-16)."""
    received = hashlib.sha256()

    async def hashing(exchange: Exchange) -> None:
        size = int(exchange.request.header("content-length"))
        left = size
        while left:
            chunk = await exchange.receive(min(left, MIB))
            received.update(chunk)
            left -= len(chunk)
        await exchange.send(message(b'{"pages": 1}'))

    sent = hashlib.sha256()

    async def document():
        for _ in range(100):
            sent.update(CHUNK)
            yield CHUNK

    async with open_stub_upstream(hashing) as stub:
        config = write_config(tmp_path, stub.url)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            warm = await client.post("/jobs", content=b"warm", headers={"X-Model": "stub"})
            await until_all_done(client, [warm.json()["job_id"]])
            before = gateway.rss_kib()
            reply = await client.post(
                "/jobs",
                content=document(),
                headers={
                    "X-Model": "stub",
                    "Content-Type": "application/pdf",
                    "Content-Length": str(100 * MIB),
                },
            )
            assert reply.status_code == 202, reply.text
            received = hashlib.sha256()
            [job] = await until_all_done(client, [reply.json()["job_id"]])
            grown = gateway.peak_rss_kib() - before
    assert job["status"] == "completed", job["problem"]
    assert sent.hexdigest() == received.hexdigest()
    assert job["doc_hash"] == f"sha256:{sent.hexdigest()}"
    assert grown <= 32 * 1024, f"resident memory grew by {grown} KiB"

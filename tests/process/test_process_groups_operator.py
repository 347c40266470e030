"""What operators see of groups, and do with them, on the command line."""

import base64
import json
from pathlib import Path

import zstandard
from command_line import sluicegate
from gateway_process import running, until_all_done, write_config
from test_process_groups import fan_out

from adapters.testing.scripts import answer
from adapters.testing.stub import open_stub_upstream


def written(path: Path) -> list[dict]:
    with path.open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    return [json.loads(line) for line in text.splitlines()]


async def test_process_operator_looks_at_a_group(tmp_path):
    """jobs list has one line for a group, with --group one for each child; show and watch tell of both (AX-14, GW-14)."""
    async with open_stub_upstream(answer(b"no", status=400), answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url, slots=1)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            group = (await fan_out(client, 3, 1))["job_id"]
            await until_all_done(client, [group])
            listed = await sluicegate("jobs", "list", gateway=gateway)
            assert [line["job_id"] for line in listed.lines()] == [group]
            children = await sluicegate("jobs", "list", "--group", group, gateway=gateway)
            assert [line["job_id"] for line in children.lines()] == [f"{group}.{n}" for n in range(3)]
            failed = await sluicegate("jobs", "list", "--group", group, "--status", "failed", gateway=gateway)
            assert [line["index"] for line in failed.lines()] == [0]
            shown = (await sluicegate("jobs", "show", group, gateway=gateway)).json()
            assert (shown["counts"]["failed"], len(shown["children"])) == (1, 3)
            watched = await sluicegate("jobs", "watch", group, gateway=gateway)
            assert (watched.code, watched.lines()[-1]["data"]["status"]) == (1, "failed")


async def test_process_operator_archives_a_group(tmp_path):
    """A group is archived with its children and their results, and gone with them; one that was retried stays as long as the
    group in its place (AX-15, GW-14)."""
    async with open_stub_upstream(answer(b"no", status=400), answer(b'{"text": "ok"}')) as stub:
        config = write_config(tmp_path, stub.url, slots=1)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            old = (await fan_out(client, 2, 1))["job_id"]
            await until_all_done(client, [old])
            retried = (await sluicegate("jobs", "retry", old, gateway=gateway)).json()["job_id"]
            await until_all_done(client, [retried])
            path = tmp_path / "old.zst"
            archived = await sluicegate(
                "archive", "--before", "2999-01-01", "--to", str(path), gateway=gateway
            )
            assert archived.code == 0, archived
            for job_id in (retried, f"{retried}.0"):
                assert (await client.get(f"/jobs/{job_id}")).status_code == 404
    lines = {line["job"]["job_id"]: line for line in written(path)}
    assert {retried, f"{retried}.0", f"{old}.1"} <= lines.keys()
    assert lines[retried]["result"] is None
    assert base64.b64decode(lines[f"{retried}.0"]["result"]["body"]) == b'{"text": "ok"}'

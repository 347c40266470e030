"""The operator's commands against a running gateway."""

import base64
import json

import pytest
import trio
import zstandard
from command_line import Ended, sluicegate
from gateway_process import audit_events, running, submit, until, until_all_done, write_config

from adapters.testing.scripts import Gated, Hang, answer, message
from adapters.testing.stub import open_stub_upstream

UNKNOWN = "job_01ARZ3NDEKTSV4RRFFQ69G5FAV"


def refused(ended: Ended, *words: str) -> None:
    """It failed, said why in words, and said nothing else."""
    assert ended.code == 1, ended
    assert ended.out == "", ended
    for word in words:
        assert word in ended.err, ended
    assert "Traceback" not in ended.err, ended


async def test_process_operator_looks_at_jobs(tmp_path):
    """jobs list, show and watch tell what the API tells, of every tenant; filters narrow (AX-14)."""
    async with open_stub_upstream(answer(b'{"text": "ok"}')) as stub:
        async with (
            running(write_config(tmp_path, stub.url), tmp_path / "log") as gateway,
            gateway.client() as client,
        ):
            acme = await submit(client, b"a", **{"X-Tenant-Id": "acme"})
            other = await submit(client, b"b", **{"X-Tenant-Id": "other"})
            late = await submit(client, b"c", **{"X-Tenant-Id": "acme", "X-Run-At": "2030-01-01T00:00:00Z"})
            watched = await sluicegate("jobs", "watch", acme["job_id"], "--json", gateway=gateway)
            assert watched.code == 0, watched
            events = watched.lines()
            assert (events[0]["type"], events[0]["data"]["job_id"]) == ("snapshot", acme["job_id"])
            assert events[-1]["data"]["status"] == "completed"

            listed = await sluicegate("jobs", "list", "--json", gateway=gateway)
            assert [job["job_id"] for job in listed.lines()] == [
                late["job_id"],
                other["job_id"],
                acme["job_id"],
            ]
            for filters, expected in (
                (["--tenant", "acme"], [late, acme]),
                (["--status", "queued", "--status", "paused"], [late]),
                (["--model", "none"], []),
                (["--since", "2029-01-01T00:00:00Z"], []),
                (["-n", "1"], [late]),
            ):
                listed = await sluicegate("jobs", "list", *filters, gateway=gateway)
                assert [job["job_id"] for job in listed.lines()] == [job["job_id"] for job in expected], (
                    filters
                )
            shown = await sluicegate("jobs", "show", acme["job_id"], "--json", gateway=gateway)
            assert (shown.json()["tenant"], shown.json()["result"]) == ("acme", {"text": "ok"})
            refused(await sluicegate("jobs", "show", UNKNOWN, gateway=gateway), UNKNOWN, "JOB_UNKNOWN")
            refused(await sluicegate("jobs", "watch", UNKNOWN, gateway=gateway), "JOB_UNKNOWN")
            refused(await sluicegate("jobs", "list", "--status", "odd", gateway=gateway), "status")
        [_, *reads] = [event for event in audit_events(tmp_path) if event.get("action") == "read"]
        assert acme["job_id"] in {event["target"] for event in reads}


async def test_process_operator_acts_on_jobs(tmp_path):
    """jobs pause, interrupt, resume, cancel, retry and delete do what they say, and exit with 1 and the problem's detail
    on unknown ids and illegal states; several ids are each dealt with (AX-14)."""
    async with open_stub_upstream(Hang(), answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url, slots=1)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            first, second = [(await submit(client, b"doc"))["job_id"] for _ in range(2)]
            await until(lambda: stub.requests)

            async def act(action: str, *ids: str) -> Ended:
                return await sluicegate("jobs", action, *ids, gateway=gateway)

            for action, status in (
                ("pause", "paused"), ("pause", "paused"), ("resume", "queued"), ("interrupt", "interrupted"), ("resume", "queued"),
            ):  # fmt: skip
                acted = await act(action, second)
                assert (acted.code, acted.json()["status"]) == (0, status), acted
            refused(await act("resume", second), "JOB_STATE_CONFLICT")
            refused(await act("pause", first), "JOB_STATE_CONFLICT")
            refused(await act("retry", first), "JOB_STATE_CONFLICT", "processing")
            for action in ("cancel", "pause", "interrupt", "resume", "retry", "delete"):
                refused(await act(action, UNKNOWN), UNKNOWN, "JOB_UNKNOWN")

            cancelled = await act("cancel", second, UNKNOWN, first)
            assert cancelled.code == 1
            assert [job["status"] for job in cancelled.lines()] == ["cancelled", "cancelled"]
            assert "JOB_UNKNOWN" in cancelled.err
            watched = await act("watch", first)
            assert (watched.code, watched.lines()[-1]["data"]["status"]) == (1, "cancelled")
            retried = await act("retry", first)
            successor = retried.json()
            assert (retried.code, successor["supersedes"]) == (0, first)
            refused(await act("retry", first), successor["job_id"])
            [done] = await until_all_done(client, [successor["job_id"]])
            assert done["status"] == "completed"
            deleted = await act("delete", successor["job_id"])
            assert (deleted.code, deleted.json()["status"]) == (0, "deleted")
            refused(await act("show", successor["job_id"]), "JOB_UNKNOWN")


async def test_process_operator_looks_at_the_gateway(tmp_path):
    """queue and upstreams print the figures of the admin API; reclaim makes a pass (AX-14)."""
    async with open_stub_upstream(Hang()) as stub:
        config = write_config(tmp_path, stub.url, slots=1)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            for _ in range(3):
                await submit(client, b"doc")
            await until(lambda: stub.requests)
            queues = (await sluicegate("queue", "--json", gateway=gateway)).json()
            assert (queues["queued"], queues["processing"]) == (2, 1)
            upstreams = (await sluicegate("upstreams", gateway=gateway)).json()["upstreams"]
            assert [(each["name"], each["in_use"], each["queued"]["batch"]) for each in upstreams] == [
                ("stub", 1, 2)
            ]
            reclaimed = await sluicegate("reclaim", gateway=gateway)
            assert (reclaimed.code, reclaimed.json()) == (0, {"requeued": 0, "failed": 0})


async def test_process_operator_drains(tmp_path):
    """drain --wait returns when nothing runs any more, and undrain lets the replica go on (AX-14)."""
    slow = Gated(message(b"{}"))
    async with open_stub_upstream(slow, answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            job = await submit(client, b"doc")
            await until(lambda: stub.requests)
            begun = await sluicegate("drain", gateway=gateway)
            assert (begun.code, begun.json()["draining"], begun.json()["processing"]) == (0, True, 1)
            assert (
                await client.post("/jobs", content=b"late", headers={"X-Model": "stub"})
            ).status_code == 503
            ends = []

            async def wait():
                ends.append(await sluicegate("drain", "--wait", gateway=gateway))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.sleep(0.5)  # it is looking by now; nothing hangs on it
                assert not ends
                slow.open()
            [ended] = ends
            assert (ended.code, ended.json()["processing"]) == (0, 0)
            assert (await until_all_done(client, [job["job_id"]]))[0]["status"] == "completed"
            undrained = await sluicegate("undrain", gateway=gateway)
            assert (undrained.code, undrained.json()["draining"]) == (0, False)
            await submit(client, b"again")


async def test_process_operator_archives(tmp_path):
    """archive removes only jobs that finished before the date, with --to after they and their results are in the file; a
    file that exists is refused, and a wrong date is a wrong call (AX-15)."""
    async with open_stub_upstream(answer(b'{"text": "ok"}'), Hang()) as stub:
        config = write_config(tmp_path, stub.url, slots=1)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            ended = (await submit(client, b"doc"))["job_id"]
            [done] = await until_all_done(client, [ended])
            at_work = (await submit(client, b"doc"))["job_id"]
            waiting = (await submit(client, b"doc"))["job_id"]
            await until(lambda: len(stub.requests) == 2)

            async def archive(*arguments: str) -> Ended:
                return await sluicegate("archive", "--before", *arguments, gateway=gateway)

            for before in ("2020-01-01", done["finished_at"]):
                assert (await archive(before)).json() == {"removed": 0, "file": None}
            path = tmp_path / "old.jsonl.zst"
            archived = await archive("2999-01-01", "--to", str(path))
            assert (archived.code, archived.json()) == (0, {"removed": 1, "file": str(path)})
            assert (await client.get(f"/jobs/{ended}")).status_code == 404
            for job_id in (at_work, waiting):
                assert (await client.get(f"/jobs/{job_id}")).status_code == 200
            with path.open("rb") as file:
                text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
            [line] = [json.loads(line) for line in text.splitlines()]
            assert (line["job"]["job_id"], line["job"]["status"], len(line["job"]["attempts"])) == (
                ended,
                "completed",
                1,
            )
            assert base64.b64decode(line["result"]["body"]) == b'{"text": "ok"}'
            refused(await archive("2999-01-01", "--to", str(path)), "exists")
            for wrong in ("yesterday", "2020-01-01T00:00:00"):
                usage = await archive(wrong)
                assert (usage.code, usage.out) == (2, ""), usage


@pytest.mark.parametrize(
    ("arguments", "environ", "code", "words"),
    [
        (["queue", "--admin-url", "http://127.0.0.1:1"], {}, 1, "UNREACHABLE"),
        (["queue", "--admin-url", "nonsense"], {}, 2, "expected a URL"),
        (["jobs", "cancel"], {}, 2, "JOB_ID"),
        (["jobs", "fly"], {}, 2, "fly"),
    ],
)
async def test_process_operator_wrong_calls(arguments, environ, code, words):
    """A gateway that is not there is exit 1, a wrong call exit 2, each in words and without a traceback (page 90)."""
    ended = await sluicegate(*arguments, **environ)
    assert (ended.code, ended.out) == (code, ""), ended
    assert words in ended.err
    assert "Traceback" not in ended.err


async def test_process_operator_needs_the_token(tmp_path):
    """Where the admin bind asks for a token, it is taken from SLUICEGATE_ADMIN_TOKEN; without it the refusal is told."""
    async with open_stub_upstream(answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url, extra="auth: {admin_token_env: TEST_ADMIN_TOKEN}")
        text = config.read_text().replace("admin_bind: 127.0.0.1:0", "admin_bind: 0.0.0.0:0")
        config.write_text(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TEST_ADMIN_TOKEN", "let-me-in")
            async with running(config, tmp_path / "log") as gateway:
                admin = gateway.admin.replace("0.0.0.0", "127.0.0.1")
                refused(await sluicegate("queue", "--admin-url", admin), "UNAUTHENTICATED")
                let_in = await sluicegate("queue", "--admin-url", admin, SLUICEGATE_ADMIN_TOKEN="let-me-in")
                assert (let_in.code, let_in.json()["queued"]) == (0, 0)

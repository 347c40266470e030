"""Several files as one group: sent at once, followed by its events, each result fetched as soon as it is there.

The stream of events says which child has ended; a list of all children at the end says what the stream may have left
out (children that were dropped) and why the others failed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import trio
from msgspec import Struct, structs

from gateway.cli.asking import told_briefly
from gateway.cli.results import Done, Wish, fetch, legible, result_names, why
from gateway.client import AsyncClient, Event, GatewayError, Job
from gateway.client.calls import GroupTerms

FETCHED_AT_ONCE: Final = 8
PAGE: Final = 500


class Shown(Struct, frozen=True):
    """Whom to tell."""

    done: Callable[[Done], None]
    """What became of a file."""
    advance: Callable[[], None]
    """A file is done with."""


class GroupSubmit:
    """One group of files, to the end that was asked for.

    Args:
        client: of the gateway.
        files: the documents.
        wish: what is to be done with them.
        terms: of the group.
        shown: whom to tell.
    """

    def __init__(
        self, client: AsyncClient, files: Sequence[Path], wish: Wish, terms: GroupTerms, shown: Shown
    ) -> None:
        self._client = client
        self._files = files
        self._shown_files = [legible(file) for file in files]
        self._names = result_names(files)
        self._wish = wish
        self._terms = terms
        self._shown = shown
        self._ended: set[int] = set()
        """Indexes of files that are done with."""
        self.failed: list[Done] = []

    async def run(self) -> None:
        """Submit, and wait where that was asked for."""
        try:
            group = await self._client.submit_group(
                self._files,
                max_parallel=self._terms.max_parallel,
                policy=self._terms.policy,
                **self._wish.options,
            )
        except GatewayError as error:
            self._refused(error)
            return
        except OSError as error:
            self._tell(Done(file=legible(error.filename or self._files[0]), error=str(error)))
            return
        if not self._wish.waits:
            for index, file in enumerate(self._shown_files):
                self._tell(Done(file=file, job_id=f"{group.job_id}.{index}", status="queued"))
            return
        await self._follow(group.job_id)

    def _refused(self, error: GatewayError) -> None:
        """A group is refused as a whole: each fault is told for its file, and what concerns all of them for the group."""
        named = {fault.get("pointer", ""): fault.get("detail", "") for fault in error.errors}
        faults = {f"/files/{index}": index for index in range(len(self._files))}
        for pointer, detail in named.items():
            place = "/".join(pointer.split("/")[:3])
            if place in faults:
                self._tell(Done(file=self._shown_files[faults[place]], error=f"{detail} ({error.code})"))
        if not self.failed:
            for file in self._shown_files:
                self._tell(Done(file=file, error=told_briefly(error)))

    async def _follow(self, group_id: str) -> None:
        send, receive = trio.open_memory_channel[int](len(self._files))
        async with trio.open_nursery() as nursery:
            for _ in range(FETCHED_AT_ONCE):
                nursery.start_soon(self._complete, group_id, receive)
            with send:
                try:
                    await self._listen(group_id, send)
                    await self._look(group_id, send)
                except GatewayError as error:
                    self._tell(Done(file=group_id, job_id=group_id, error=told_briefly(error)))

    async def _listen(self, group_id: str, send: trio.MemorySendChannel[int]) -> None:
        """The group's events, to its end."""
        async with self._client.events(group_id) as events:
            async for event in events:
                index = _completed(event, group_id)
                if index is not None:
                    await send.send(index)

    async def _look(self, group_id: str, send: trio.MemorySendChannel[int]) -> None:
        """All children, after the end of the group."""
        index = 0
        async for child in self._client.list(group=group_id, limit=PAGE):
            if child.status == "completed":
                await send.send(index)
            elif index not in self._ended:
                self._ended.add(index)
                self._tell(self._done(index, child))
            index += 1

    async def _complete(self, group_id: str, indexes: trio.MemoryReceiveChannel[int]) -> None:
        """Finish with completed children, until there are no more."""
        async for index in indexes:
            if index in self._ended:
                continue
            self._ended.add(index)
            job_id = f"{group_id}.{index}"
            done = Done(file=self._shown_files[index], job_id=job_id, status="completed")
            if self._wish.out is not None:
                done = await self._fetched(done, self._wish.out / self._names[index])
            self._tell(done)

    async def _fetched(self, done: Done, path: Path) -> Done:
        try:
            where = await fetch(self._client, done.job_id or "", path)
        except GatewayError as error:
            return structs.replace(done, error=told_briefly(error))
        except OSError as error:
            return structs.replace(done, error=str(error))
        return structs.replace(done, result=legible(where))

    def _done(self, index: int, child: Job) -> Done:
        return Done(file=self._shown_files[index], job_id=child.job_id, status=child.status, error=why(child))

    def _tell(self, done: Done) -> None:
        if done.refused:
            self.failed.append(done)
        self._shown.done(done)
        self._shown.advance()


def _completed(event: Event, group_id: str) -> int | None:
    """The index of the child that an event says has completed."""
    if event.type != "job.completed" or event.data.get("parent_id") != group_id:
        return None
    _, _, index = str(event.data.get("job_id", "")).rpartition(".")
    return int(index) if index.isascii() and index.isdigit() else None

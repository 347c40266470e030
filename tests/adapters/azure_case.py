"""An azure-di adapter on virtual time, over a client that plays answers."""

from contextlib import asynccontextmanager
from itertools import pairwise

import h11
import pytest
import trio
from msgspec.structs import replace

from adapters.api_key import ApiKey
from adapters.azure.operation import Operation
from adapters.azure_di import AzureDi, AzureDiOptions, PollOptions
from adapters.base import AdapterError, Kind
from adapters.http_answer import Answer
from adapters.testing.azure_stub import RESULT
from adapters.testing.doubles import MemoryDocument, MemoryReport, call_for

ENDPOINT = "https://di.example"
PATH = "/documentintelligence/documentModels/m/analyzeResults/op-1?api-version=2024-11-30"
NOW_MS = 1_700_000_000_000
"""Tue, 14 Nov 2023 22:13:20 GMT."""
KEY = ApiKey("Ocp-Apim-Subscription-Key", "k-0123456789")

ACCEPTED = (202, {"Operation-Location": ENDPOINT + PATH}, b"")
RUNNING = (200, {}, b'{"status":"running"}')
DONE = (200, {}, b'{"status":"succeeded","analyzeResult":%s}' % RESULT)
LOST = AdapterError(Kind.CONNECT, "UPSTREAM_CONNECT", "the connection broke")
HANG = "hang"


class Body:
    """The body of an answer, which may be slow or break off."""

    def __init__(self, data, wait_s=0):
        self.data = data
        self.wait_s = wait_s

    def __aiter__(self):
        return self

    async def __anext__(self):
        await trio.sleep(self.wait_s)
        if isinstance(self.data, Exception):
            raise self.data
        data, self.data = self.data, b""
        if not data:
            raise StopAsyncIteration
        return data


class PlayedClient:
    """An HttpClient that plays answers, the last one for ever, and remembers when it was asked for what."""

    def __init__(self, *plays):
        self.plays = list(plays)
        self.asked = []

    @asynccontextmanager
    async def open(self, request):
        await trio.lowlevel.checkpoint()
        self.asked.append((round(trio.current_time(), 3), request))
        play = self.plays.pop(0) if len(self.plays) > 1 else self.plays[0]
        if isinstance(play, AdapterError):
            raise play
        if play == HANG:
            await trio.sleep_forever()
        status, headers, *body = play
        head = h11.Response(status_code=status, headers=list(headers.items()))
        yield Answer(head, Body(*body), request.origin, lambda: NOW_MS)

    @property
    def times(self):
        return [at for at, _ in self.asked]

    @property
    def methods(self):
        return [request.method for _, request in self.asked]


class Case:
    """An adapter over a played client."""

    def __init__(self, *plays, resume=None, deadline_s=None, **poll):
        self.client = PlayedClient(*plays)
        self.report = MemoryReport()
        options = AzureDiOptions(submit_path="/di/{model}:analyze", poll=PollOptions(**poll))
        self.adapter = AzureDi(options, self.client, KEY, lambda: NOW_MS, lambda: 0.0)
        self.call = replace(call_for(ENDPOINT, MemoryDocument(b"document")), resume=resume)
        if deadline_s is not None:
            self.call = replace(self.call, deadline=trio.current_time() + deadline_s)
        self.began = trio.current_time()

    async def run(self):
        return await self.adapter.run(self.call, self.report)

    async def failure(self):
        with pytest.raises(AdapterError) as caught:
            await self.run()
        return caught.value

    @property
    def waits(self):
        """Between two requests each, s."""
        return [pytest.approx(after - before, abs=0.002) for before, after in pairwise(self.client.times)]


def saved(age_s, path=PATH):
    return Operation(ENDPOINT + path, NOW_MS - round(age_s * 1000)).saved()

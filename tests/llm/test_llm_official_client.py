"""The official client works against the gateway unchanged: the stub plays the service behind it."""

import openai
import pytest
from gateway_process import audit_events
from llm_gateway import CLIENT_KEY, SERVICE_KEY, official_client, write_config

from adapters.testing import scripts
from adapters.testing.llm_stub import (
    CHAT,
    COMPLETION_TOKENS,
    EMBEDDINGS,
    PROMPT_TOKENS,
    VECTOR,
    WORDS,
    breaks_off,
    delta,
    error,
    open_llm_stub,
)

MESSAGES = [{"role": "user", "content": "Wie viele €?"}]
SAID = "".join(WORDS)


@pytest.fixture
async def house(tmp_path, monkeypatch):
    """The client, and the stub behind the gateway."""
    monkeypatch.setenv("HOUSE_KEY", SERVICE_KEY)
    async with open_llm_stub(key=SERVICE_KEY) as llm:
        config = write_config(tmp_path, llm.url, more="api_key_env: HOUSE_KEY")
        async with official_client(config, tmp_path) as official:
            yield official, llm


def chat(client, **more):
    return client.chat.completions.create(model="house-model", messages=MESSAGES, **more)


async def test_openai_chat(house):
    """A chat is answered; its model is mapped, unknown fields go on, the client's key does not (GW-18, GW-3)."""
    official, llm = house
    answer = await official.does(lambda client: chat(client, seed=7, extra_body={"top_k": 3}))
    assert answer.choices[0].message.content == SAID
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (PROMPT_TOKENS, COMPLETION_TOKENS)
    [call] = llm.calls
    assert call.body == {"model": "stub", "messages": MESSAGES, "seed": 7, "top_k": 3}
    assert CLIENT_KEY.encode() not in call.request.raw


async def test_openai_stream(house):
    """A chat streams word by word to its end (GW-18)."""
    official, _ = house
    chunks = await official.does(lambda client: list(chat(client, stream=True)))
    assert [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content] == list(
        WORDS
    )


async def test_openai_stream_with_usage(house):
    """Usage that the client asks for comes as the last chunk, as from the service (GW-18)."""
    official, _ = house
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    *_, last = await official.does(lambda client: list(chat(client, **asked)))
    assert (last.choices, last.usage.completion_tokens) == ([], COMPLETION_TOKENS)


async def test_openai_embeddings(house):
    """Texts are embedded (GW-18)."""
    official, llm = house
    answer = await official.does(
        lambda client: client.embeddings.create(
            model="house-model", input=["a", "b"], encoding_format="float"
        )
    )
    assert [tuple(each.embedding) for each in answer.data] == [VECTOR, VECTOR]
    assert [call.path for call in llm.calls] == [EMBEDDINGS]


async def test_openai_models(house):
    """The models are those of the gateway (GW-18)."""
    official, llm = house
    models = await official.does(lambda client: list(client.models.list()))
    assert [(model.id, model.object) for model in models] == [("house-model", "model")]
    assert llm.calls == []


async def test_openai_completions(house):
    """The older route works, whole and streamed (GW-18)."""
    official, _ = house

    def complete(client, **more):
        return client.completions.create(model="house-model", prompt="?", **more)

    whole = await official.does(complete)
    streamed = await official.does(lambda client: list(complete(client, stream=True)))
    assert whole.choices[0].text == "".join(chunk.choices[0].text for chunk in streamed) == SAID


async def test_openai_responses(house):
    """The newer route works, whole and streamed, up to its usage (GW-18)."""
    official, _ = house

    def respond(client, **more):
        return client.responses.create(model="house-model", input="?", **more)

    whole = await official.does(respond)
    events = await official.does(lambda client: list(respond(client, stream=True)))
    assert (whole.output_text, whole.usage.output_tokens) == (SAID, COMPLETION_TOKENS)
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == SAID


@pytest.mark.parametrize(
    ("script", "raised", "status", "code"),
    [
        (
            error(400, "too long", code="context_length_exceeded"),
            openai.BadRequestError,
            400,
            "context_length_exceeded",
        ),
        (error(429, "slowly", headers={"Retry-After": "7"}), openai.RateLimitError, 429, None),
        (error(500, "broken"), openai.InternalServerError, 500, None),
        (error(401, "who?"), openai.InternalServerError, 502, "UPSTREAM_AUTH"),
        (scripts.closes_before_answer(), openai.InternalServerError, 502, "UPSTREAM_CONNECT"),
    ],
)
async def test_openai_errors(house, script, raised, status, code):
    """What the service refuses comes as the client's own error, its words and code included; what concerns the
    gateway's key or no connection is the gateway's, in the same shape (GW-18)."""
    official, llm = house
    llm.plays(CHAT, script)
    with pytest.raises(raised) as caught:
        await official.does(chat)
    assert (caught.value.status_code, caught.value.code) == (status, code)
    if status == 429:
        assert caught.value.response.headers["retry-after"] == "7"


async def test_openai_unknown_model(house):
    """A model that nobody serves is the client's NotFoundError (GW-18)."""
    official, llm = house
    with pytest.raises(openai.NotFoundError) as caught:
        await official.does(lambda client: client.chat.completions.create(model="nobody", messages=MESSAGES))
    assert caught.value.code == "MODEL_UNKNOWN"
    assert llm.calls == []


async def test_openai_stream_that_dies(house):
    """A service that dies within a stream is an error of the client, behind the words that came (GW-18)."""
    official, llm = house
    llm.plays(CHAT, breaks_off(delta("Gr"), delta("üße")))
    words = []

    def read(client):
        words.extend(chunk.choices[0].delta.content for chunk in chat(client, stream=True))

    with pytest.raises(openai.APIError):
        await official.does(read)
    assert words == ["Gr", "üße"]


async def test_openai_calls_are_audited(house, tmp_path):
    """Each call leaves one event with its usage, streamed or not (GW-18, GW-15)."""
    official, _ = house
    await official.does(chat)
    await official.does(
        lambda client: list(chat(client, stream=True, stream_options={"include_usage": True}))
    )
    await official.does(lambda client: client.embeddings.create(model="house-model", input="a"))
    official.gateway.signal(15)
    assert await official.gateway.ended() == 0
    events = audit_events(tmp_path)
    assert [(event["operation"], event["stream"], event["status"]) for event in events] == [
        ("chat", False, "completed"),
        ("chat", True, "completed"),
        ("embed", False, "completed"),
    ]
    usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": COMPLETION_TOKENS, "pages": None}
    assert [event["usage"] for event in events] == [usage, usage, {**usage, "output_tokens": None}]

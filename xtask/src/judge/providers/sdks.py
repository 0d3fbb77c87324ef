"""Asks the scripted server through the makers' own clients, for `cargo xtask judge providers sdks`.

Arguments: the server's address, the script (a JSON file). For each question, wire and way (stream or whole) it holds the
conversation to its end and compares what the client read with what the script means. Prints one line for each wire, and
every difference; the exit code is 1 when there was any.
"""

import base64
import json
import sys
import warnings

import anthropic
import boto3
import botocore.config
import botocore.exceptions
import openai
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types

address, script_path = sys.argv[1:]
with open(script_path, encoding="utf-8") as file:
    SCRIPT = json.load(file)
warnings.filterwarnings("ignore")

RESULT = "fine"
TOOLS = {name: {"type": "object", "properties": {"city": {"type": "string"}}} for name in ("weather", "now")}
WHAT = "Tells {}."
TIMEOUT_S = 30


class Read:
    """What a client read: the fields of a scripted answer, in the client's own words where these differ by wire."""

    def __init__(self, reasoning="", proof="", text="", calls=(), finish=None, usage=None):
        self.reasoning, self.proof, self.text, self.calls = reasoning or "", proof or "", text or "", list(calls)
        self.finish, self.usage = finish, usage or {}


class Failed(Exception):
    """What a client raised: its class, the HTTP status it knows (None inside a stream), and the text read before."""

    def __init__(self, error, status, text=""):
        super().__init__(str(error))
        self.kind, self.status, self.text = type(error).__name__, status, text


# What other makers add to this one's wire.
FOREIGN = {"reasoning_content"}


def strict(model):
    """Checks what the client took unchecked: it makes its objects of anything. The object as it is."""
    try:
        type(model).model_validate(model.to_dict())
    except ValueError as error:
        same(f"a {type(model).__name__}", str(error), "valid")
    strange = sorted(unknown(model) - FOREIGN)
    same(f"unknown fields of a {type(model).__name__}", strange, [])
    return model


def unknown(value):
    """Names of fields that the client's types do not have, at any depth."""
    if isinstance(value, (list, tuple)):
        return set().union(*map(unknown, value))
    if not hasattr(value, "model_extra"):
        return set()
    inner = [getattr(value, name, None) for name in type(value).model_fields]
    return set(value.model_extra or ()) | unknown(inner)


def call(id, name, arguments):
    """A call; arguments as a value, since some clients parse them."""
    return (id, name, json.loads(arguments) if isinstance(arguments, str) else arguments)


class Wire:
    """One maker's client: `ask` for an answer, `extend` the history by the answer and the results of its calls."""

    finishes = {}
    statuses = {"rate_limited": 429, "overloaded": 503, "unauthorized": 401, "invalid": 400}
    keeps_proof = True

    def begin(self, question):
        return [{"role": "user", "content": question}]

    def meant_usage(self, usage):
        """What the client's fields must hold for the counts of the script."""
        raise NotImplementedError


def prompt(usage):
    return sum(usage.get(name, 0) for name in ("input_uncached", "cache_read", "cache_write"))


class Chat(Wire):
    name = "chat_completions"
    finishes = {"whole": "stop", "calls": "tool_calls", "length": "length", "filtered": "content_filter"}
    keeps_proof = False  # This wire has none.

    def __init__(self):
        self.client = openai.OpenAI(base_url=address + "/v1", api_key="any", max_retries=0, timeout=TIMEOUT_S)
        self.tools = [
            {"type": "function", "function": {"name": name, "description": WHAT.format(name), "parameters": schema}}
            for name, schema in TOOLS.items()
        ]

    def ask(self, history, stream):
        asked = {"model": "gpt-5-mini", "messages": history, "tools": self.tools}
        text = ""
        try:
            if not stream:
                done = strict(self.client.chat.completions.create(**asked))
                return self.read(done.choices[0].message, done.choices[0].finish_reason, done.usage)
            # Its own accumulator puts the pieces together.
            with self.client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
                reasoning = ""
                for event in events:
                    if event.type == "content.delta":
                        text += event.delta
                    if event.type == "chunk":
                        strict(event.chunk)
                    if event.type == "chunk" and event.chunk.choices:
                        reasoning += getattr(event.chunk.choices[0].delta, "reasoning_content", None) or ""
                done = events.get_final_completion()
            read = self.read(done.choices[0].message, done.choices[0].finish_reason, done.usage)
            same("streamed text", text, read.text)
            read.reasoning = reasoning
            return read
        # The accumulator turns two reasons to stop into errors of its own, behind the whole answer.
        except openai.LengthFinishReasonError as error:
            done = error.completion
            return self.read(done.choices[0].message, done.choices[0].finish_reason, done.usage)
        except openai.ContentFilterFinishReasonError:
            return self.plain_stream(asked)
        except openai.APIError as error:
            raise Failed(error, getattr(error, "status_code", None), text) from error

    def plain_stream(self, asked):
        read = Read()
        for chunk in self.client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
            for choice in strict(chunk).choices:
                read.text += choice.delta.content or ""
                read.finish = choice.finish_reason or read.finish
            if chunk.usage:
                read.usage = self.usage(chunk.usage)
        return read

    def read(self, message, finish, usage):
        calls = [call(one.id, one.function.name, one.function.arguments) for one in message.tool_calls or ()]
        reasoning = getattr(message, "reasoning_content", None)
        return Read(reasoning, "", message.content, calls, finish, self.usage(usage))

    def usage(self, usage):
        return {
            "prompt": usage.prompt_tokens,
            "cached": usage.prompt_tokens_details.cached_tokens,
            "written": usage.prompt_tokens_details.cache_write_tokens,
            "output": usage.completion_tokens,
            "reasoning": usage.completion_tokens_details.reasoning_tokens,
            "total": usage.total_tokens,
        }

    def meant_usage(self, usage):
        return {
            "prompt": prompt(usage),
            "cached": usage.get("cache_read", 0),
            "written": usage.get("cache_write", 0),
            "output": usage["output"],
            "reasoning": usage.get("reasoning", 0),
            "total": prompt(usage) + usage["output"],
        }

    def extend(self, history, read):
        calls = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id, name, arguments in read.calls
        ]
        history.append({"role": "assistant", "content": read.text, "tool_calls": calls})
        history.extend({"role": "tool", "tool_call_id": id, "content": RESULT} for id, _, _ in read.calls)


class Responses(Wire):
    name = "responses"
    finishes = {"whole": "completed", "calls": "completed", "length": "max_output_tokens", "filtered": "content_filter"}

    def __init__(self):
        self.client = openai.OpenAI(base_url=address + "/v1", api_key="any", max_retries=0, timeout=TIMEOUT_S)
        self.tools = [
            {"type": "function", "name": name, "description": WHAT.format(name), "parameters": schema, "strict": False}
            for name, schema in TOOLS.items()
        ]

    def ask(self, history, stream):
        asked = {
            "model": "gpt-5-mini",
            "input": history,
            "tools": self.tools,
            "include": ["reasoning.encrypted_content"],
            "store": False,
        }
        text = reasoning = ""
        arguments, numbers = {}, []
        try:
            if not stream:
                return self.read(strict(self.client.responses.create(**asked)))
            done = None
            for event in self.client.responses.create(**asked, stream=True):
                numbers.append(strict(event).sequence_number)
                if event.type == "response.output_text.delta":
                    text += event.delta
                elif event.type == "response.reasoning_summary_text.delta":
                    reasoning += event.delta
                elif event.type == "response.function_call_arguments.delta":
                    arguments[event.output_index] = arguments.get(event.output_index, "") + event.delta
                elif event.type in ("response.completed", "response.incomplete"):
                    done = event.response
                elif event.type == "error":
                    # The client hands this one on as an event.
                    raise Failed(event, None, text)
            same("event numbers", numbers, list(range(len(numbers))))
            read = self.read(done)
            same("streamed text", text, read.text)
            same("streamed reasoning", reasoning, read.reasoning)
            whole = [item.arguments for item in done.output if item.type == "function_call"]
            same("streamed arguments", [arguments[at] for at in sorted(arguments)], whole)
            # Its own accumulator must come to the same end; it knows only one.
            if done.status == "completed":
                with self.client.responses.stream(**asked) as events:
                    same("accumulated text", events.get_final_response().output_text, read.text)
            return read
        except openai.APIError as error:
            raise Failed(error, getattr(error, "status_code", None), text) from error

    def read(self, done):
        read = Read(finish=done.status if done.incomplete_details is None else done.incomplete_details.reason)
        read.text = done.output_text
        read.output = done.output
        for item in done.output:
            if item.type == "reasoning":
                read.reasoning += "".join(part.text for part in item.summary)
                read.proof = item.encrypted_content
            elif item.type == "function_call":
                read.calls.append(call(item.call_id, item.name, item.arguments))
        usage = done.usage
        read.usage = {
            "prompt": usage.input_tokens,
            "cached": usage.input_tokens_details.cached_tokens,
            "written": usage.input_tokens_details.cache_write_tokens,
            "output": usage.output_tokens,
            "reasoning": usage.output_tokens_details.reasoning_tokens,
            "total": usage.total_tokens,
        }
        return read

    meant_usage = Chat.meant_usage

    def extend(self, history, read):
        history.extend(read.output)
        history.extend({"type": "function_call_output", "call_id": id, "output": RESULT} for id, _, _ in read.calls)


class Messages(Wire):
    name = "anthropic_messages"
    finishes = {"whole": "end_turn", "calls": "tool_use", "length": "max_tokens", "filtered": "refusal"}
    statuses = {"rate_limited": 429, "overloaded": 529, "unauthorized": 401, "invalid": 400}

    def __init__(self):
        self.client = anthropic.Anthropic(base_url=address, api_key="any", max_retries=0, timeout=TIMEOUT_S)
        self.tools = [
            {"name": name, "description": WHAT.format(name), "input_schema": schema} for name, schema in TOOLS.items()
        ]

    def ask(self, history, stream):
        asked = {"model": "claude-sonnet-4-6", "max_tokens": 4096, "messages": history, "tools": self.tools}
        text = ""
        try:
            if not stream:
                return self.read(strict(self.client.messages.create(**asked)))
            with self.client.messages.stream(**asked) as events:
                for more in events.text_stream:
                    text += more
                done = events.get_final_message()
            # The events themselves, which the accumulator does not show.
            for event in self.client.messages.create(**asked, stream=True):
                strict(event)
            read = self.read(done)
            same("streamed text", text, read.text)
            return read
        except anthropic.APIStatusError as error:
            # Inside a stream the client knows only the 200 of its beginning, and the type of the error.
            status = error.status_code if error.status_code != 200 else None
            if isinstance(error.body, dict) and status is None:
                same("error type", error.body["error"]["type"], "overloaded_error")
            raise Failed(error, status, text) from error

    def read(self, done):
        read = Read(finish=done.stop_reason)
        read.content = done.content
        for block in done.content:
            if block.type == "thinking":
                read.reasoning += block.thinking
                read.proof = block.signature
            elif block.type == "text":
                read.text += block.text
            elif block.type == "tool_use":
                read.calls.append(call(block.id, block.name, block.input))
        usage = done.usage
        read.usage = {
            "input": usage.input_tokens,
            "cached": usage.cache_read_input_tokens,
            "written": usage.cache_creation_input_tokens,
            "output": usage.output_tokens,
            "reasoning": usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else 0,
        }
        return read

    def meant_usage(self, usage):
        return {
            "input": usage["input_uncached"],
            "cached": usage.get("cache_read", 0),
            "written": usage.get("cache_write", 0),
            "output": usage["output"],
            "reasoning": usage.get("reasoning", 0),
        }

    def extend(self, history, read):
        history.append({"role": "assistant", "content": read.content})
        results = [{"type": "tool_result", "tool_use_id": id, "content": RESULT} for id, _, _ in read.calls]
        history.append({"role": "user", "content": results})


class Gemini(Wire):
    name = "gemini"
    finishes = {"whole": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "filtered": "SAFETY"}
    # A wrong key is a bad request with this maker.
    statuses = {"rate_limited": 429, "overloaded": 503, "unauthorized": 400, "invalid": 400}

    def __init__(self):
        options = genai_types.HttpOptions(base_url=address, api_version="v1beta", timeout=TIMEOUT_S * 1000)
        self.client = genai.Client(api_key="any", vertexai=False, http_options=options)
        declared = [
            genai_types.FunctionDeclaration(name=name, description=WHAT.format(name), parameters_json_schema=schema)
            for name, schema in TOOLS.items()
        ]
        self.config = genai_types.GenerateContentConfig(
            tools=[genai_types.Tool(function_declarations=declared)],
            automatic_function_calling=genai_types.AutomaticFunctionCallingConfig(disable=True),
        )

    def begin(self, question):
        return [genai_types.Content(role="user", parts=[genai_types.Part(text=question)])]

    def ask(self, history, stream):
        asked = {"model": "gemini-3-pro-preview", "contents": history, "config": self.config}
        read = Read()
        read.parts = []
        try:
            if not stream:
                self.take(self.client.models.generate_content(**asked), read)
            else:
                for chunk in self.client.models.generate_content_stream(**asked):
                    self.take(chunk, read)
        except genai_errors.APIError as error:
            raise Failed(error, error.code, read.text) from error
        return read

    def take(self, chunk, read):
        candidate = chunk.candidates[0]
        for part in candidate.content.parts or ():
            read.parts.append(part)
            if part.thought:
                read.reasoning += part.text
            elif part.text:
                read.text += part.text
            if part.function_call:
                one = part.function_call
                read.calls.append(call(one.id, one.name, one.args))
            if part.thought_signature:
                read.proof = base64.b64encode(part.thought_signature).decode()
        if candidate.finish_reason:
            read.finish = candidate.finish_reason.value
        usage = chunk.usage_metadata
        read.usage = {
            "prompt": usage.prompt_token_count,
            "cached": usage.cached_content_token_count or 0,
            "output": usage.candidates_token_count,
            "reasoning": usage.thoughts_token_count or 0,
            "total": usage.total_token_count,
        }

    def meant_usage(self, usage):
        thoughts = usage.get("reasoning", 0)
        return {
            "prompt": prompt(usage),
            "cached": usage.get("cache_read", 0),
            "output": usage["output"] - thoughts,
            "reasoning": thoughts,
            "total": prompt(usage) + usage["output"],
        }

    def extend(self, history, read):
        history.append(genai_types.Content(role="model", parts=read.parts))
        results = [
            genai_types.Part(
                function_response=genai_types.FunctionResponse(id=id, name=name, response={"result": RESULT})
            )
            for id, name, _ in read.calls
        ]
        history.append(genai_types.Content(role="user", parts=results))


class Converse(Wire):
    name = "bedrock_converse"
    finishes = {"whole": "end_turn", "calls": "tool_use", "length": "max_tokens", "filtered": "content_filtered"}
    statuses = {"rate_limited": 429, "overloaded": 503, "unauthorized": 403, "invalid": 400}

    def __init__(self):
        config = botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=TIMEOUT_S)
        self.client = boto3.client(
            "bedrock-runtime",
            endpoint_url=address,
            region_name="eu-west-1",
            aws_access_key_id="AKTEST",
            aws_secret_access_key="secret",
            config=config,
        )
        specs = [
            {"toolSpec": {"name": name, "description": WHAT.format(name), "inputSchema": {"json": schema}}}
            for name, schema in TOOLS.items()
        ]
        self.tools = {"tools": [*specs, {"cachePoint": {"type": "default"}}]}

    def begin(self, question):
        return [{"role": "user", "content": [{"text": question}]}]

    def ask(self, history, stream):
        model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
        asked = {"modelId": model, "messages": history, "toolConfig": self.tools}
        read = Read()
        try:
            if not stream:
                done = self.client.converse(**asked)
                self.whole(done["output"]["message"]["content"], read)
                read.finish, read.usage = done["stopReason"], self.usage(done["usage"])
                return read
            blocks = {}
            for event in self.client.converse_stream(**asked)["stream"]:
                self.take(event, blocks, read)
            content = [self.closed(blocks[at]) for at in sorted(blocks)]
            streamed, read.text = read.text, ""
            self.whole(content, read)
            same("streamed text", streamed, read.text)
            return read
        except botocore.exceptions.EventStreamError as error:
            same("exception", error.response["Error"]["Code"], "serviceUnavailableException")
            raise Failed(error, None, read.text) from error
        except botocore.exceptions.ClientError as error:
            raise Failed(error, error.response["ResponseMetadata"]["HTTPStatusCode"], read.text) from error

    def take(self, event, blocks, read):
        if "contentBlockStart" in event:
            begun = event["contentBlockStart"]
            blocks[begun["contentBlockIndex"]] = {"toolUse": {**begun["start"]["toolUse"], "input": ""}}
        elif "contentBlockDelta" in event:
            at, delta = event["contentBlockDelta"]["contentBlockIndex"], event["contentBlockDelta"]["delta"]
            if "text" in delta:
                block = blocks.setdefault(at, {"text": ""})
                block["text"] += delta["text"]
                read.text += delta["text"]
            elif "toolUse" in delta:
                blocks[at]["toolUse"]["input"] += delta["toolUse"]["input"]
            else:
                block = blocks.setdefault(at, {"reasoningContent": {"reasoningText": {"text": "", "signature": ""}}})
                for name, more in delta["reasoningContent"].items():
                    block["reasoningContent"]["reasoningText"][name] += more
        elif "messageStop" in event:
            read.finish = event["messageStop"]["stopReason"]
        elif "metadata" in event:
            read.usage = self.usage(event["metadata"]["usage"])

    def closed(self, block):
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"])
        return block

    def whole(self, content, read):
        read.content = content
        for block in content:
            if "text" in block:
                read.text += block["text"]
            elif "toolUse" in block:
                used = block["toolUse"]
                read.calls.append(call(used["toolUseId"], used["name"], used["input"]))
            elif "reasoningContent" in block:
                read.reasoning += block["reasoningContent"]["reasoningText"]["text"]
                read.proof = block["reasoningContent"]["reasoningText"]["signature"]

    def usage(self, usage):
        return {
            "input": usage["inputTokens"],
            "cached": usage["cacheReadInputTokens"],
            "written": usage["cacheWriteInputTokens"],
            "output": usage["outputTokens"],
        }

    def meant_usage(self, usage):
        return {
            "input": usage["input_uncached"],
            "cached": usage.get("cache_read", 0),
            "written": usage.get("cache_write", 0),
            "output": usage["output"],
        }

    def extend(self, history, read):
        history.append({"role": "assistant", "content": read.content})
        results = [{"toolResult": {"toolUseId": id, "content": [{"text": RESULT}]}} for id, _, _ in read.calls]
        history.append({"role": "user", "content": results})


differences = []
place = ""


def same(what, read, meant):
    """Notes a difference."""
    if read != meant:
        differences.append(f"{place}: {what} is {read!r}, meant is {meant!r}")


def compare(wire, read, answer):
    finish = answer.get("finish", "whole")
    calls = [call(one["id"], one["name"], one["arguments"]) for one in answer.get("calls", ())]
    same("text", read.text, answer.get("text", ""))
    same("reasoning", read.reasoning, answer.get("reasoning", ""))
    if wire.keeps_proof:
        same("proof", read.proof, answer.get("proof", ""))
    same("calls", read.calls, calls)
    same("finish", read.finish, wire.finishes["calls" if calls and finish == "whole" else finish])
    same("usage", read.usage, wire.meant_usage(answer["usage"]))


def converse(wire, question, answers, stream):
    """One conversation to its end; the number of answers."""
    global place
    history = wire.begin(question)
    for nth, answer in enumerate(answers):
        place = f"{wire.name}, {'stream' if stream else 'whole'}, {question!r}, answer {nth + 1}"
        error = answer.get("error")
        try:
            read = wire.ask(history, stream)
        except Failed as failed:
            if error is None:
                same("the answer", f"{failed.kind}: {failed}", "no error")
                return nth
            in_stream = stream and answer.get("text")
            status = failed.status if wire.name == "gemini" or not in_stream else None
            meant = wire.statuses[error["kind"]] if wire.name == "gemini" or not in_stream else None
            same("status", status, meant)
            same("text before the error", failed.text, answer["text"] if in_stream else "")
            same("message", error["message"] in str(failed), True)
            return nth + 1
        if error is not None:
            same("the answer", "no error", error)
            return nth + 1
        compare(wire, read, answer)
        wire.extend(history, read)
    return len(answers)


for wire in (Chat(), Responses(), Messages(), Gemini(), Converse()):
    before = len(differences)
    asked = [(question, answers, stream) for question, answers in SCRIPT.items() for stream in (True, False)]
    count = sum(converse(wire, *one) for one in asked)
    found = len(differences) - before
    print(f"  {wire.name:<20} {len(asked)} conversations, {count} answers, {found} differences", flush=True)
for difference in differences:
    print("  " + difference)
sys.exit(1 if differences else 0)

"""The scripted model: which scripts there are, and which are refused."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

from testing.model.apis import APIS, CHAT, GEMINI, RESPONSES, Api, Talk, ask, hear, send

from ralphtool.testing import (
    All,
    Call,
    Fail,
    ModelServer,
    Request,
    Say,
    Turn,
    script,
)


def told(count: int) -> Talk:
    return Talk(told=("ok",) * count)


def test_turns_come_by_how_often_the_model_has_spoken(model: ModelServer, api: Api, stream: bool) -> None:
    model.scenario = script(Call("t"), Say("Two."), Say("Three."))
    asked = [0, 1, 1, 2, 3, 7, 0]
    heard = [hear(model, api, told(count), stream=stream) for count in asked]
    nothing = "I have nothing more to say."
    assert [each.text for each in heard] == ["", "Two.", "Two.", "Three.", nothing, nothing, ""]
    assert (heard[0].calls, heard[-1].calls) == ([("t", {})], [("t", {})]), "a fresh conversation begins anew"
    assert [each.step for each in model.requests] == asked


def test_all_that_one_response_had_is_one_turn(model: ModelServer) -> None:
    model.scenario = script(All((Say("One."), Call("t"))), Say("Two."))
    body = RESPONSES.body(told(1), True)
    words = [{"type": "output_text", "text": "One."}]
    body["input"][1:1] = [{"type": "reasoning"}, {"type": "message", "role": "assistant", "content": words}]
    reply = send(model, "POST", RESPONSES.path(True), json.dumps(body).encode())
    assert RESPONSES.heard(reply, True).text == "Two."


def test_a_model_may_begin_with_ok(model: ModelServer) -> None:
    model.scenario = script(Say("Ok. I begin."), Say("Two."))
    body = CHAT.body(Talk(tools=("bash",)), True)
    body["messages"] += [{"role": "assistant", "content": "Ok. I begin."}, {"role": "user", "content": "Go on."}]
    reply = send(model, "POST", CHAT.path(True), json.dumps(body).encode())
    assert CHAT.heard(reply, True).text == "Two."


def test_hindrances_come_so_often_before_the_turn_after_them(model: ModelServer, api: Api) -> None:
    turns = script(
        Fail(status=500, times=2), Fail(status=429, times=1), Say("One."), Fail(status=529, times=1), Say("2")
    )
    model.scenario = turns
    first = [ask(model, api).status for _ in range(5)]
    second = [ask(model, api, told(1)).status for _ in range(3)]
    again = ask(model, api).status
    assert first == [500, 500, 429, 200, 200]
    assert second == [503 if api is GEMINI else 529, 200, 200]
    assert again == 200, "what is used up stays so, in a fresh conversation too"


def test_a_hindrance_without_a_number_stays_for_ever(model: ModelServer) -> None:
    model.scenario = script(Say("One."), Fail(status=500), Say("Never."))
    assert hear(model, CHAT).text == "One."
    assert [ask(model, CHAT, told(1)).status for _ in range(4)] == [500] * 4


def test_a_title_is_given_beside_the_work(model: ModelServer, api: Api, stream: bool) -> None:
    asks = Talk(system="You are a title generator. You output ONLY a thread title.")
    model.scenario = script(Fail(status=500, times=1), Say("One."))
    assert hear(model, api, asks, stream=stream).text == "A title"
    assert ask(model, api).status == 500, "the title has used nothing up"
    with_tools = asks._replace(tools=("bash",))
    assert hear(model, api, with_tools, stream=stream).text == "One.", "who has tools is at work"


def test_hindrances_are_counted_right_whoever_asks_at_the_same_time() -> None:
    with ModelServer(script(Fail(status=500, times=5), Say("One."))) as model, ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda number: ask(model, APIS[number % 4]), range(12)))
    assert sorted(reply.status for reply in replies) == [200] * 7 + [500] * 5
    assert len(model.requests) == len(model.began) == 12


def test_a_scenario_is_asked_by_one_at_a_time() -> None:
    seen = 0

    def choose(request: Request) -> Turn:
        nonlocal seen
        number = seen
        time.sleep(0.002)
        seen = number + 1
        return Say(str(number))

    with ModelServer(choose) as model, ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda _: hear(model, CHAT).text, range(8)))
    assert sorted(texts) == [str(number) for number in range(8)]

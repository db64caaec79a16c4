"""What the errors of real agents mean: the texts that they print, and texts that only look similar."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from ralphtool.agents import Trouble
from ralphtool.agents.failures import classify_status, classify_text, failure, parse_reset_time

# --- the kind of trouble ----------------------------------------------------------------------------

GEMINI_QUOTA = json.dumps(
    {
        "error": {
            "code": 429,
            "message": "You exceeded your current quota, please check your plan and billing details. For more "
            "information, head to: https://ai.google.dev/gemini-api/docs/rate-limits.\nPlease retry in 34.074824224s.",
            "status": "RESOURCE_EXHAUSTED",
            "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}],
        }
    },
    indent=2,
)

LIMITS = [
    "Claude AI usage limit reached|1735689600",
    "5-hour limit reached ∙ resets 3pm",
    "You've hit your limit · resets 3pm (Europe/Berlin)",
    "You've hit your session limit · resets 8:30pm (Asia/Tokyo)",
    "You've hit your weekly limit · resets Jul 31, 2am (UTC)",
    "You've hit your org's monthly usage limit",
    "You've hit your Fable 5 limit · resets 3pm",
    "You're out of extra usage · resets Nov 20, 3pm",
    "Opus weekly limit reached ∙ resets Nov 20 at 3pm",
    'API Error: 429 {"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your '
    "account's rate limit. Please try again later.\"}}",
    '429 {"type":"error","error":{"type":"rate_limit_error","message":"Extra usage is required for long context '
    'requests that exceed the context window."}}',
    "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
    'API Error: 400 {"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified '
    'API usage limits. You will regain access on 2026-03-01 at 00:00 UTC."}}',
    "rate_limit",  # how Claude Code names it when it tries again
    "You've hit your usage limit. Upgrade to Pro (https://openai.com/chatgpt/pricing) or try again in 5 days 22 hours.",
    "You\u2019ve hit your usage limit. Visit https://chatgpt.com/settings/usage to purchase more credits or try again "
    "at 3:42 PM.",
    "exceeded retry limit, last status: 429 Too Many Requests, request id: 99927d40789dcbd0-MAD",
    '{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_in_seconds":602705}}',
    "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29937, Requested "
    "385. Please try again in 644ms.",
    "[API Error: You have exhausted your daily quota on this model.]",
    "You have exhausted your capacity on this model. Your quota will reset after 18h31m10s.",
    "Resource has been exhausted (e.g. check quota).",
    "Quota exceeded for quota metric 'Gemini 2.5 Pro Requests' and limit 'Gemini 2.5 Pro Requests per day'",
    GEMINI_QUOTA,
    f"[API Error: {json.dumps({'error': {'message': GEMINI_QUOTA, 'code': 429, 'status': 'Too Many Requests'}})}]",
    "litellm.RateLimitError: VertexAIException - b'[{ ... RESOURCE_EXHAUSTED ...",
    "RateLimitError",
    "The API provider has rate limited you. Try again later or check your quotas.",
    "AI_APICallError: Too Many Requests",
    "Free usage exceeded, subscribe to Go",
    "Weekly usage limit reached. It will reset in 2 days 3 hours. To continue using this model now, enable usage",
    "Error from provider (Console): Rate limit exceeded. Please try again later.",
    "[429 Too Many Requests] try later",
    "ThrottlingException: Too many tokens, please wait before trying again.",
]
OVERLOADS = [
    'API Error: 529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
    "API Error: Repeated 529 Overloaded errors",
    "overloaded",
    "server_error",
    "Opus is experiencing high load, please use /model to switch to Sonnet",
    'API Error: 500 {"type":"error","error":{"type":"api_error","message":"Internal server error"}}',
    "We\u2019re currently experiencing high demand, which may cause temporary errors.",
    "Selected model is at capacity. Please try a different model.",
    "exceeded retry limit, last status: 503 Service Unavailable",
    "stream disconnected before completion: An error occurred while processing your request. You can retry it",
    '{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}',
    '{"error":{"message":"try later","status":"UNAVAILABLE"}}',
    "No capacity available for model gemini-3-flash-preview on the server",
    "An internal error has occurred. Please retry or report in https://developers.generativeai.google/",
    "litellm.InternalServerError: InternalServerError: OpenAIException - boom",
    "litellm.ServiceUnavailableError: x",
    "BadGatewayError",
    "The API provider's servers are down or overloaded.",
    "HTTP status server error (502 Bad Gateway) for url (https://x/v1)",
    "Server error '504 Gateway Timeout' for url 'https://x'",
    "503 status code (no body)",
    "HTTP/1.1 503",
    "HTTP 500",
    "Request failed with status code 500",
    "Provider is overloaded",
]
NETWORKS = [
    "Unable to connect to API (ECONNREFUSED)",
    "API Error: Connection error.",
    "Request timed out. Check your internet connection and proxy settings",
    "Unable to connect to API: SSL certificate verification failed. Check your proxy or corporate SSL certificates",
    "API Error: The socket connection was closed unexpectedly. For more information, pass `verbose: true`",
    "stream disconnected before completion: error sending request for url (https://api.openai.com/v1/responses)",
    "stream disconnected before completion: idle timeout waiting for SSE",
    "stream disconnected before completion: Transport error: network error: error decoding response body",
    "stream closed before response.completed",
    "Connection failed: error sending request for url (http://127.0.0.1:9/v1/responses)",
    "exception TypeError: fetch failed sending request",
    "request to https://x failed, reason: getaddrinfo ENOTFOUND generativelanguage.googleapis.com",
    "getaddrinfo EAI_AGAIN api.anthropic.com",
    "read ECONNRESET",
    "TLS handshake failed",
    "other side closed",
    "TypeError: terminated",
    "UND_ERR_HEADERS_TIMEOUT",
    "socket hang up",
    "Client network socket disconnected before secure TLS connection was established",
    "Cannot connect to API: The socket connection was closed unexpectedly.",
    "Unable to connect. Is the computer able to access the url?",
    "SSE read timed out",
    "litellm.APIConnectionError: OpenAIException - Connection error.",
    "litellm.Timeout: APITimeoutError - Request timed out.",
    "Timeout",
    "httpx.ConnectError: All connection attempts failed",
    "httpx.ReadTimeout",
    "Server disconnected without sending a response.",
    "peer closed connection without sending complete message body (incomplete chunked read)",
    "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
    "[Errno -3] Temporary failure in name resolution",
]
LOGINS = [
    "Invalid API key · Please run /login",
    "Not logged in · Please run /login",
    'API Error: 401 {"type":"error","error":{"type":"authentication_error","message":"OAuth token has expired. Please '
    'obtain a new token or refresh your existing token."}}',
    "OAuth token has been revoked",
    "authentication_failed",
    "Your account does not have access to Claude. Please login again or contact your administrator.",
    "This organization has been disabled.",
    "Could not resolve authentication method. Expected either apiKey or authToken to be set.",
    'API Error: 403 {"error":{"type":"permission_error","message":"OAuth authentication is currently not allowed"}}',
    "exceeded retry limit, last status: 401 Unauthorized, request id: 9a5793386e39fede-SIN",
    "unexpected status 401 Unauthorized: Missing bearer or basic authentication in header, url: http://x/v1/responses",
    "Missing environment variable: `OPENAI_API_KEY`.",
    "Your access token could not be refreshed because your refresh token was already used. Please sign in again.",
    "Not signed in",
    "Please set an Auth method in your ~/.gemini/settings.json or specify one of the following variables",
    "When using Gemini API, you must specify the GEMINI_API_KEY environment variable.",
    '{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}',
    "Request had invalid authentication credentials.",
    "Error authenticating: invalid_grant",
    "Your application requires a quota project. HTTP 403",
    "The API provider is not able to authenticate you. Check your API key.",
    "litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided: sk-x",
    "litellm.AuthenticationError: Missing Anthropic API Key - A call is being made to anthropic but no key is set",
    "The api_key client option must be set either by passing api_key or by setting the OPENAI_API_KEY variable",
    "AI_LoadAPIKeyError: OpenAI API key is missing.",
    "ProviderAuthError",
    "Incorrect API key provided: sk-x",
    "invalid x-api-key",
    "PermissionDeniedError",
]
MONEY = [  # only a person can resolve these, as with a login; waiting does not help
    "Credit balance is too low",
    'litellm.BadRequestError: AnthropicException - {"type":"error","error":{"type":"invalid_request_error","message":'
    '"Your credit balance is too low to access the Anthropic API."}}',
    "Quota exceeded. Check your plan and billing details.",
    "Error code: 429 - {'error': {'message': 'You exceeded your current quota', 'code': 'insufficient_quota'}}",
    "litellm.RateLimitError: RateLimitError: OpenAIException - You exceeded your current quota, please check your plan "
    "and billing details. For more information, read the docs: https://platform.openai.com/docs/guides/error-codes",
    "Billing hard limit has been reached",
    "Your account is not active, please check your billing details on our website.",
    "Your workspace is out of credits. Add credits to continue.",
    "You hit your spend cap set in your workspace. Increase your spend cap to continue.",
    "To use Codex with your ChatGPT plan, upgrade to Plus: https://chatgpt.com/explore/plus.",
    "API Error: Usage credits required for 1M context · run /usage-credits to turn them on, or /model to switch",
    "Insufficient credits with the API provider. Please add credits.",
    '{"error":{"message":"This request requires more credits, or fewer max_tokens.","code":402}}',
    "Your group's usage limit is set to $0 · run /usage-credits to ask your admin for a higher limit",
]
CONTEXTS = [
    "Prompt is too long",
    'API Error: 400 {"error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 '
    'maximum"}}',
    "input length and `max_tokens` exceed context limit: 199000 + 32000 > 200000, decrease input length",
    "Context limit reached · /compact or /clear to continue",
    "Conversation too long. Press esc twice to go up a few messages and try again.",
    "API Error: 413 Request too large",
    '{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}',
    "Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "context_length_exceeded",
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 500 tokens more.",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - x",
    "ContextOverflowError",
    "Model openai/x has hit a token limit!",
    "the request exceeds the available context size",
    "input (9000 tokens) is longer than the model's context length (8192 tokens)",
    "RateLimitError: Error code: 429 - {'error': {'message': 'Request too large for gpt-4o in organization org-x on "
    "tokens per min (TPM): Limit 30000, Requested 31538. The input or output tokens must be reduced'}}",
]
OTHERS = [
    "",
    "unknown",
    "Cannot find module 'express-rate-limit'",
    "ModuleNotFoundError: No module named 'ratelimit'",
    "ImportError: cannot import name 'RateLimitError' from 'openai'",
    "cannot find module 'connect'",
    "src/ratelimit/limiter.py: rate-limit is a name here",
    "invalid model name",
    "error: unknown option '--quota-exceeded'",
    "error: unexpected argument '--login' found",
    "max turns reached",
    "Reached maximum number of turns (30)",
    "Reached maximum budget ($5)",
    "LimitsExceeded",
    "agent thread limit reached",
    "permission denied: file",
    "EACCES: permission denied, open '/etc/shadow'",
    'Os { code: 13, kind: PermissionDenied, message: "Permission denied" }',
    "ENOSPC: no space left on device, write",
    "EDQUOT: disk quota exceeded, write",
    "memory usage limit exceeded",
    "listen EADDRINUSE: address already in use :::5000",
    "could not bind port 5000",
    "status 200",
    "HTTP/1.1 200 OK",
    "500 tests failed",
    "error: 500 tokens were left",
    "Error: 429 files are too many",
    "exceeds 500 characters at line 503",
    "error in /srv/error/500/index.html",
    "since 2500 or 5030",
    "error-500.html is missing",
    "error: 500.5 was left",
    "error: 503-a.txt",
    "error: 500% of it",
    "process exited with code 143",
    "sandbox denied exec error, exit code: 137",
    "timeout waiting for child process to exit",
    "Command timed out after 120s",
    "internal error; agent loop died unexpectedly",
    "API Error: Request was aborted.",
    'API Error: 404 {"type":"error","error":{"type":"not_found_error","message":"model: claude-x"}}',
    "unexpected status 404 Not Found: connection closed, service unavailable",
    'API Error: 400 {"error":{"type":"invalid_request_error","message":"tool_use ids were found without results"}}',
    "MCP client for `docs` failed to start: 401 Unauthorized",
    "MCP error -32001: Request timed out",
    "no login page was found in the project",
    "Resource temporarily unavailable",
    "Failed to fetch commit 41b0c2d: no such ref",
    "Unauthorized model name: x",
    "invalid connectTimeout",
    "response is missing id_token",
    "the story adds a connection pool and credentials for the network",
]


def _named() -> Iterator[tuple[str, Trouble]]:
    for texts, trouble in (
        (LIMITS, "rate-limit"),
        (OVERLOADS, "overload"),
        (NETWORKS, "network"),
        (LOGINS + MONEY, "login"),
        (CONTEXTS, "context"),
        (OTHERS, "other"),
    ):
        yield from ((text, trouble) for text in texts)  # type: ignore[misc]


@pytest.mark.parametrize(("text", "trouble"), [*_named()])
def test_what_agents_say(text: str, trouble: Trouble) -> None:
    assert classify_text(text) == trouble
    assert failure(text).trouble == trouble


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        (200, "other"),
        (400, "other"),
        (401, "login"),
        (402, "login"),
        (403, "login"),
        (404, "other"),
        (407, "login"),
        (408, "network"),
        (413, "context"),
        (422, "other"),
        (429, "rate-limit"),
        (500, "overload"),
        (501, "other"),
        (503, "overload"),
        (529, "overload"),
        (600, "other"),
        (0, "other"),
        (-1, "other"),
    ],
)
def test_statuses(status: int, trouble: Trouble) -> None:
    assert classify_status(status) == trouble
    assert failure("something", status).trouble == trouble


@pytest.mark.parametrize(
    ("text", "status", "trouble"),
    [
        ("prompt is too long: 208310 tokens > 200000 maximum", 400, "context"),
        ("Credit balance is too low", 400, "login"),
        ("insufficient_quota", 429, "login"),
        ("long context requests exceed the context window", 429, "rate-limit"),
        ("API rate limit exceeded", 403, "rate-limit"),
        ("connection closed", 400, "other"),
        ("connection closed", 500, "overload"),
        ("context_length_exceeded", 500, "context"),
        ("Overloaded", 200, "overload"),
        ("status 500", 429, "rate-limit"),  # the separate status counts, not the one in the text
    ],
)
def test_words_that_are_more_exact_than_a_status(text: str, status: int, trouble: Trouble) -> None:
    assert failure(text, status).trouble == trouble


# --- when it ends -----------------------------------------------------------------------------------

NOW = datetime(2026, 3, 10, 12, 0, 30, tzinfo=UTC).timestamp()  # in New York 08:00:30, in Tokyo 21:00:30
MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.fixture
def at_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("try again in 2 days 3 hours 5 minutes.", 2 * DAY + 3 * HOUR + 5 * MINUTE),
        ("or try again in 5 days 22 hours 11\nminutes.", 5 * DAY + 22 * HOUR + 11 * MINUTE),
        ("Try again in 1 day, 2 hours and 3 minutes", DAY + 2 * HOUR + 3 * MINUTE),
        ("Your quota will reset after 18h31m10s.", 18 * HOUR + 31 * MINUTE + 10),
        ("Please retry in 34.074824224s.", 34.074824224),
        ('"retryDelay": "34s"', 34),
        (r"\"retryDelay\": \"34.5s\"", 34.5),
        ("retry_delay {\n  seconds: 34\n}", 34),
        ("Suggested retry after 60s.", 60),
        ("Please try again in 6m0s.", 360),
        ("Please try again in 1m26.4s.", 86.4),
        ("Please try again in 20s. Visit https://x/account/rate-limits", 20),
        ("Please try again in 345ms.", 0.345),
        ("Retrying in 0.2 seconds...", 0.2),
        ("It will reset in 3 hours 12 minutes. To continue", 3 * HOUR + 12 * MINUTE),
        ("Fast limit reached · resets in 1h 30m", 90 * MINUTE),
        ("(banner: resets in 6d)", 6 * DAY),
        ("Please wait 30 seconds before the next request", 30),
        ("wait for about 5 minutes", 300),
        ("available again in 5 mins", 300),
        ("retry-after: 30", 30),
        ("retry-after: 30\nx-request-id: abc", 30),
        ("{'retry-after': '30', 'x': '1'}", 30),
        ("Retry after 30.", 30),
        ('"retry_after":12.5}', 12.5),
        ("retry-after-ms: 1500", 1.5),
        ('"retry_delay_ms":2500,', 2.5),
        ('"resets_in_seconds":602705}', 602705),
        ("x-ratelimit-reset-tokens: 6m0s", 360),
        ('"quotaResetDelay": "539.5ms"', 0.5395),
        ("Your quota will reset after 0s.. Retrying after 5710ms...", 5.71),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_reset_time(text, NOW) == pytest.approx(NOW + seconds, abs=0.0005)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        (f"Claude AI usage limit reached|{int(NOW) + 7200}", "2026-03-10T14:00:30Z"),
        (f'"resets_at":{int(NOW) + 7200},"resets_in_seconds":7200', "2026-03-10T14:00:30Z"),
        (f'"X-RateLimit-Reset":"{(int(NOW) + 7200) * 1000}"', "2026-03-10T14:00:30Z"),
        ("limit resets at 2026-03-10T14:00:30Z", "2026-03-10T14:00:30Z"),
        ("anthropic-ratelimit-requests-reset: 2026-03-10T14:00:30.123456789Z", "2026-03-10T14:00:30.123456Z"),
        ('"quotaResetTimeStamp": "2026-03-10T16:00:30+02:00"', "2026-03-10T14:00:30Z"),
        ("retry after 2026-03-10 16:00:30 +0200", "2026-03-10T14:00:30Z"),
        ("resets 2026-03-10 15:00 UTC", "2026-03-10T15:00:00Z"),
        ("resets 2026-03-10 15:00", "2026-03-10T19:00:00Z"),
        ("You will regain access on 2026-04-01 at 00:00 UTC.", "2026-04-01T00:00:00Z"),
        ("5-hour limit reached ∙ resets 3pm", "2026-03-10T19:00:00Z"),
        ("resets 3:30 PM", "2026-03-10T19:30:00Z"),
        ("resets 7am", "2026-03-11T11:00:00Z"),  # seven has passed in New York
        ("resets 12am", "2026-03-11T04:00:00Z"),
        ("resets 12pm", "2026-03-10T16:00:00Z"),
        ("resets at 15:00.", "2026-03-10T19:00:00Z"),
        ("or try again at 3:42 PM.", "2026-03-10T19:42:00Z"),
        ("try again at 3:42\u202fPM.", "2026-03-10T19:42:00Z"),  # as Node prints it
        ("You've hit your limit · resets 3pm (Europe/Berlin)", "2026-03-10T14:00:00Z"),
        ("resets 1:30am (Asia/Tokyo)", "2026-03-10T16:30:00Z"),
        ("resets 9pm (America/Argentina/Buenos_Aires)", "2026-03-11T00:00:00Z"),
        ("resets 3pm (UTC)", "2026-03-10T15:00:00Z"),
        ("resets at 15:00 GMT", "2026-03-10T15:00:00Z"),
        ("resets at midnight; resets 12:00 AM PST", "2026-03-11T07:00:00Z"),
        ("weekly limit ∙ resets Mar 20 at 3pm", "2026-03-20T19:00:00Z"),
        ("resets Mar 20, 2am (UTC)", "2026-03-20T02:00:00Z"),
        ("resets Mar 20, 2026, 2:15am (UTC)", "2026-03-20T02:15:00Z"),
        ("resets March 20 (UTC)", "2026-03-20T00:00:00Z"),
        ("Try again at Apr 5th, 2026 8:19 PM.", "2026-04-06T00:19:00Z"),
        ("Retry-After: Wed, 11 Mar 2026 07:28:00 GMT", "2026-03-11T07:28:00Z"),
    ],
)
@pytest.mark.usefixtures("at_new_york")
def test_moments(text: str, moment: str) -> None:
    told = parse_reset_time(text, NOW)
    assert told is not None
    assert told == pytest.approx(datetime.fromisoformat(moment).timestamp(), abs=0.001)


def test_a_date_without_a_year_is_the_next_one() -> None:
    eve = datetime(2026, 12, 31, 12, tzinfo=UTC).timestamp()
    assert parse_reset_time("resets Jan 2 at 3pm (UTC)", eve) == datetime(2027, 1, 2, 15, tzinfo=UTC).timestamp()
    leap = datetime(2028, 2, 28, 12, tzinfo=UTC).timestamp()
    assert parse_reset_time("resets Feb 29 at 3pm (UTC)", leap) == datetime(2028, 2, 29, 15, tzinfo=UTC).timestamp()


@pytest.mark.usefixtures("at_new_york")
def test_a_clock_time_keeps_its_hour_when_the_clocks_change() -> None:
    before = datetime(2026, 3, 7, 22, tzinfo=UTC).timestamp()  # the night when New York loses an hour
    expected = datetime(2026, 3, 8, 13, tzinfo=UTC).timestamp()
    assert parse_reset_time("resets 9am", before) == expected
    assert parse_reset_time("resets 9am (America/New_York)", before) == expected


def test_what_is_only_just_over_is_not_a_day_away() -> None:
    assert parse_reset_time("resets 12pm (UTC)", NOW) is None
    assert parse_reset_time("resets 12pm (UTC)", NOW + 600) == NOW - 30 + DAY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "try again later",
        "Please try again tomorrow at noon",
        "limit 30000, used 29937, requested 385 in 20s",
        "took 20s and 5 minutes at 3pm on Nov 20",
        f"request {int(NOW) + 7200} failed",
        "2026-03-10T14:00:30Z ERROR overloaded",
        "read ECONNRESET 2026-03-10T14:00:30Z",
        "connection reset at 15:00",
        "exceeded retry limit, last status: 429",
        "retry 3 of 10",
        "retry after 3 attempts",
        "try again with 5 files",
        "wait 7",
        "reset 30",
        "retry in 5 months",
        "resets 25:00 (UTC)",
        "resets at 10:99",
        "resets Mar 20:15",
        "resets 3pm (Mars/Olympus_Mons)",
        "resets Feb 31 at 3pm (UTC)",
        "resets Foo 20 at 3pm",
        "try again at 10 de jul. de 2026, 11:52.",
        f"usage limit reached|{int(NOW) - 60}",  # in the past
        "resets 2026-03-10T11:00:00Z",
        "resets Mar 9 at 3pm (UTC)",
        "resets Mar 9, 2026 at 3pm (UTC)",
        "retry after 0s",
        "retry-after: 0",
        "retry in 36 days",  # too far away
        "resets May 20 at 3pm (UTC)",
        "resets 2027-03-10T11:00:00Z",
        f"usage limit reached|{int(NOW) + 40 * DAY}",
        "usage limit reached|99999999999999999999",
        "retry in 999999999 days",
        "resets 9999-99-99T99:99:99Z",
        "resets 0000-00-00 00:00",
    ],
)
def test_what_tells_no_time(text: str) -> None:
    assert parse_reset_time(text, NOW) is None


def test_the_first_time_that_is_ahead_counts() -> None:
    text = f"usage limit reached|{int(NOW) - 60}; resets 2026-03-10T11:00:00Z; try again in 5 minutes or in 3 hours"
    assert parse_reset_time(text, NOW) == NOW + 300


# --- both together ----------------------------------------------------------------------------------


def test_a_failure_tells_when_it_is_over() -> None:
    before = time.time()
    told = failure("You've hit your usage limit. Try again in 2 hours.")
    assert told.trouble == "rate-limit"
    assert told.reset_at is not None
    assert before + 7200 <= told.reset_at <= time.time() + 7200


def test_a_time_that_is_told_apart_counts_unless_it_is_over() -> None:
    soon = time.time() + 500
    assert failure("usage limit; try again in 2 hours", reset_at=soon).reset_at == soon
    assert failure("usage limit", reset_at=soon * 1000).reset_at == pytest.approx(soon)
    assert failure("usage limit", reset_at=1.0).reset_at is None
    assert failure("usage limit", reset_at=float("nan")).reset_at is None
    again = failure("usage limit; try again in 2 hours", reset_at=1.0).reset_at
    assert again is not None
    assert again > soon


def test_a_lost_connection_has_no_hour() -> None:
    assert failure("Connection error. Retrying in 30 minutes").reset_at is None
    assert failure("prompt is too long; try again in 30 minutes").reset_at is None


def test_the_end_of_a_long_text_is_read_as_well() -> None:
    text = (
        "Traceback (most recent call last):\n" + "  at some place\n" * 9999 + "RateLimitError: try again in 5 minutes"
    )
    told = failure(text)
    assert told.trouble == "rate-limit"
    assert told.reset_at is not None
    assert told.text.startswith("Traceback")
    assert told.text.endswith("try again in 5 minutes")
    assert len(told.text) < 7000


MEGABYTE = 1 << 20


@pytest.mark.parametrize(
    "piece",
    ["1", " ", ":", "\n", "0:", "a", "reset ", "retry in ", "again at 1", "1h", "limit reached|", "exceed ", "status ",
     "error: ", "context ", "\\\"", "Jan 1 ", "retry in 1 1d", "request too large for ", "1.1", "(A/", "é\0", "token "],
)  # fmt: skip
def test_no_text_is_slow_or_raises(piece: str) -> None:
    text = piece * (MEGABYTE // len(piece))
    for one in (text, f"resets {text}", f"try again in {text}", f"{text}resets 3pm", f"error: {text[:5500]} retry in"):
        begun = time.process_time()
        assert len(failure(one).text) < 7000
        assert (parse_reset_time(one, NOW) or NOW + 1) > NOW
        assert time.process_time() - begun < 5  # a guard against hanging; it takes milliseconds


def test_no_soup_of_their_words_raises() -> None:
    words = (
        "resets try again in at after retry-after: 3 pm am : , ( ) UTC Foo/Bar Nov 31 2026 - T Z 1h ms | 9 . 29 Feb 00"
    )
    chance = random.Random(7)
    for _ in range(3000):
        text = chance.choice(["", " "]).join(chance.choices(words.split(), k=chance.randint(1, 12)))
        for now in (NOW, 0.0, -1e10, 1e18, float("inf"), float("nan")):
            told = parse_reset_time(text, now)
            assert told is None or now < told <= now + 35 * DAY

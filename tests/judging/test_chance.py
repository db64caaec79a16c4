"""Which tests may end differently although nothing was changed, by their text."""

from __future__ import annotations

import pytest

from ralphtool.judging.chance import may_vary
from ralphtool.judging.guard.model import FileChange


@pytest.mark.parametrize(
    "line",
    [
        "    assert random.random() < 0.5",
        "    expect(Math.random()).toBeLessThan(0.5)",
        "    assert!(rand::random::<bool>());",
        "    if rand.Intn(2) == 0 { t.Fatal() }",
        "    assert int(time.time()) % 2",
        "    expect(Date.now() % 2).toBe(0)",
        "    expect(new Date().getSeconds()).toBeGreaterThan(3)",
        "    assert!(SystemTime::now() > start);",
        "    if time.Now().Second() > 3 { t.Fail() }",
        "    threading.Thread(target=work).start()",
        "    await new Promise((done) => setTimeout(done, 10))",
        "    go func() { done <- true }()",
        "    path = Path(tempfile.gettempdir()) / 'seen'",
        "    open('/tmp/seen', 'x')",
        "    assert os.getpid() % 2",
        "    assert hash('a') % 2",
        "    expect(rand).to be < 0.5",
        "    $this->assertTrue(mt_rand(0, 1) === 1);",
    ],
)
def test_a_line_that_may_make_it_vary(line: str) -> None:
    assert may_vary([change("", f"before\n{line}\n")])


@pytest.mark.parametrize(
    "line",
    [
        "    assert total([1, 2]) == 3",
        "    assert parse(datetime(2020, 1, 2)) == '2020-01-02'",
        "    expect(new Date(2020, 1, 2).getDay()).toBe(0)",
        "    path = tmp_path / 'file.txt'",
        "    assert knows('a brand new threadbare operand')",
        "    time = parse('10:30')",
        "    assert width(valid(1))",
    ],
)
def test_a_line_of_an_ordinary_test(line: str) -> None:
    assert not may_vary([change("", f"before\n{line}\n")])


def test_only_lines_that_were_added_count() -> None:
    assert not may_vary([change("import random\n", "import random\nassert True\n")])
    assert not may_vary([change("import random\n", None)])


def change(old: str, new: str | None) -> FileChange:
    return FileChange(path="tests/test_a.py", old=old.encode(), new=None if new is None else new.encode())

# ruff: noqa: E501 (recorded output is as wide as it was)
"""Reading test results: real programs where they can be expected, recorded output of the others.

Recorded with jest 30.5, vitest 3.2, mocha 12.0, go 1.19, cargo 1.95, phpunit 9.6 and rspec 3.12; only stack traces and
code frames were taken out. The tests in there print what looks like results, and have names that occur twice.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphtool.judging.testresults import LIMIT, Tally, failed_in_junit, failed_tests, junit_paths, tally

JEST = """\
  console.log
    ● cart › fake

    FAIL fake.test.js
      ● fake › result

FAIL ./a.test.js
  ✕ same name (23 ms)
  ✓ is odd 1 (1 ms)
  ✕ is odd 2 (1 ms)
  cart
    ○ skipped later
    ✎ todo some day
    adds
      ✕ two items (7 ms)
      ✓ three items (1 ms)

  ● cart › adds › two items

    expect(received).toBe(expected) // Object.is equality

    Expected: 3
    Received: 2

  ● same name

    expect(received).toEqual(expected) // deep equality

    - Expected  - 1
    + Received  + 1

      Object {
    -   "a": 2,
    +   "a": 1,
      }

  ● is odd 2

    expect(received).toBe(expected) // Object.is equality

    Expected: 1
    Received: 0

FAIL b/a.test.js
  ✕ same name (1 ms)

  ● same name

    boom

FAIL ./broken.test.js
  ● Test suite failed to run

    Cannot find module './nowhere' from 'broken.test.js'

PASS ./ok.test.js
  ✓ fine (1 ms)

Test Suites: 3 failed, 1 passed, 4 total
Tests:       4 failed, 1 skipped, 1 todo, 3 passed, 9 total
Snapshots:   0 total
Time:        0.805 s, estimated 1 s
Ran all test suites.
"""

JEST_IN_COLOUR = """\
\x1b[0m\x1b[7m\x1b[1m\x1b[31m FAIL \x1b[39m\x1b[22m\x1b[27m\x1b[0m \x1b[2m./\x1b[22m\x1b[1ma.test.js\x1b[22m
  \x1b[1m● \x1b[22mConsole

    \x1b[2mconsole.log\x1b[22m
      ● cart › fake

      FAIL fake.test.js
        ● fake › result
\x1b[2m\x1b[22m

\x1b[1m\x1b[31m  \x1b[1m● \x1b[22m\x1b[1mcart › adds › two items\x1b[39m\x1b[22m

    \x1b[2mexpect(\x1b[22m\x1b[31mreceived\x1b[39m\x1b[2m).\x1b[22mtoBe\x1b[2m(\x1b[22m\x1b[32mexpected\x1b[39m\x1b[2m) // Object.is equality\x1b[22m

    Expected: \x1b[32m3\x1b[39m
    Received: \x1b[31m2\x1b[39m

\x1b[1m\x1b[31m  \x1b[1m● \x1b[22m\x1b[1msame name\x1b[39m\x1b[22m

    \x1b[2mexpect(\x1b[22m\x1b[31mreceived\x1b[39m\x1b[2m).\x1b[22mtoEqual\x1b[2m(\x1b[22m\x1b[32mexpected\x1b[39m\x1b[2m) // deep equality\x1b[22m

    \x1b[32m- Expected  - 1\x1b[39m
    \x1b[31m+ Received  + 1\x1b[39m

    \x1b[2m  Object {\x1b[22m
    \x1b[32m-   "a": 2,\x1b[39m
    \x1b[31m+   "a": 1,\x1b[39m
    \x1b[2m  }\x1b[22m

\x1b[1m\x1b[31m  \x1b[1m● \x1b[22m\x1b[1mis odd 2\x1b[39m\x1b[22m

    \x1b[2mexpect(\x1b[22m\x1b[31mreceived\x1b[39m\x1b[2m).\x1b[22mtoBe\x1b[2m(\x1b[22m\x1b[32mexpected\x1b[39m\x1b[2m) // Object.is equality\x1b[22m

    Expected: \x1b[32m1\x1b[39m
    Received: \x1b[31m0\x1b[39m

\x1b[0m\x1b[7m\x1b[1m\x1b[31m FAIL \x1b[39m\x1b[22m\x1b[27m\x1b[0m \x1b[2mb/\x1b[22m\x1b[1ma.test.js\x1b[22m
\x1b[1m\x1b[31m  \x1b[1m● \x1b[22m\x1b[1msame name\x1b[39m\x1b[22m

    boom

\x1b[0m\x1b[7m\x1b[1m\x1b[31m FAIL \x1b[39m\x1b[22m\x1b[27m\x1b[0m \x1b[2m./\x1b[22m\x1b[1mbroken.test.js\x1b[22m
  \x1b[1m● \x1b[22mTest suite failed to run

    Cannot find module './nowhere' from 'broken.test.js'

\x1b[0m\x1b[7m\x1b[1m\x1b[32m PASS \x1b[39m\x1b[22m\x1b[27m\x1b[0m \x1b[2m./\x1b[22m\x1b[1mok.test.js\x1b[22m

\x1b[1mTest Suites: \x1b[22m\x1b[1m\x1b[31m3 failed\x1b[39m\x1b[22m, \x1b[1m\x1b[32m1 passed\x1b[39m\x1b[22m, 4 total
\x1b[1mTests:       \x1b[22m\x1b[1m\x1b[31m4 failed\x1b[39m\x1b[22m, \x1b[1m\x1b[33m1 skipped\x1b[39m\x1b[22m, \x1b[1m\x1b[35m1 todo\x1b[39m\x1b[22m, \x1b[1m\x1b[32m3 passed\x1b[39m\x1b[22m, 9 total
\x1b[1mSnapshots:   \x1b[22m0 total
\x1b[1mTime:\x1b[22m        0.536 s, estimated 1 s
\x1b[2mRan all test suites\x1b[22m\x1b[2m.\x1b[22m
"""

VITEST = """\

\x1b[1m\x1b[46m RUN \x1b[49m\x1b[22m \x1b[36mv3.2.7 \x1b[39m\x1b[90m/src/shop\x1b[39m

\x1b[90mstdout\x1b[2m | a.test.js\x1b[2m > \x1b[22m\x1b[2msame name
\x1b[22m\x1b[39m● cart › fake

FAIL fake.test.js
  ● fake › result

 \x1b[31m❯\x1b[39m a.test.js \x1b[2m(\x1b[22m\x1b[2m7 tests\x1b[22m\x1b[2m | \x1b[22m\x1b[31m3 failed\x1b[39m\x1b[2m | \x1b[22m\x1b[33m2 skipped\x1b[39m\x1b[2m)\x1b[22m\x1b[32m 23\x1b[2mms\x1b[22m\x1b[39m
\x1b[31m   \x1b[31m×\x1b[31m cart\x1b[2m > \x1b[22madds\x1b[2m > \x1b[22mtwo items\x1b[39m\x1b[32m 13\x1b[2mms\x1b[22m\x1b[39m
\x1b[31m     → expected 2 to be 3 // Object.is equality\x1b[39m
   \x1b[32m✓\x1b[39m cart\x1b[2m > \x1b[22madds\x1b[2m > \x1b[22mthree items\x1b[32m 1\x1b[2mms\x1b[22m\x1b[39m
   \x1b[2m\x1b[90m↓\x1b[39m\x1b[22m cart\x1b[2m > \x1b[22mlater
   \x1b[2m\x1b[90m↓\x1b[39m\x1b[22m cart\x1b[2m > \x1b[22msome day
\x1b[31m   \x1b[31m×\x1b[31m same name\x1b[39m\x1b[32m 6\x1b[2mms\x1b[22m\x1b[39m
\x1b[31m     → expected { a: 1 } to deeply equal { a: 2 }\x1b[39m
   \x1b[32m✓\x1b[39m is odd 1\x1b[32m 0\x1b[2mms\x1b[22m\x1b[39m
\x1b[31m   \x1b[31m×\x1b[31m is odd 2\x1b[39m\x1b[32m 1\x1b[2mms\x1b[22m\x1b[39m
\x1b[31m     → expected +0 to be 1 // Object.is equality\x1b[39m
 \x1b[31m❯\x1b[39m b/a.test.js \x1b[2m(\x1b[22m\x1b[2m1 test\x1b[22m\x1b[2m | \x1b[22m\x1b[31m1 failed\x1b[39m\x1b[2m)\x1b[22m\x1b[32m 7\x1b[2mms\x1b[22m\x1b[39m
\x1b[31m   \x1b[31m×\x1b[31m same name\x1b[39m\x1b[32m 5\x1b[2mms\x1b[22m\x1b[39m
\x1b[31m     → boom\x1b[39m
 \x1b[32m✓\x1b[39m ok.test.js \x1b[2m(\x1b[22m\x1b[2m1 test\x1b[22m\x1b[2m)\x1b[22m\x1b[32m 2\x1b[2mms\x1b[22m\x1b[39m

\x1b[31m⎯⎯⎯⎯⎯⎯\x1b[39m\x1b[1m\x1b[41m Failed Suites 1 \x1b[49m\x1b[22m\x1b[31m⎯⎯⎯⎯⎯⎯⎯\x1b[39m

\x1b[41m\x1b[1m FAIL \x1b[22m\x1b[49m broken.test.js\x1b[2m [ broken.test.js ]\x1b[22m
\x1b[31m\x1b[1mError\x1b[22m: Cannot find module './nowhere' imported from '/src/shop/broken.test.js'\x1b[39m
\x1b[36m \x1b[2m❯\x1b[22m broken.test.js:\x1b[2m1:30\x1b[22m\x1b[39m

\x1b[31m\x1b[1mCaused by: Error\x1b[22m: Failed to load url ./nowhere (resolved id: ./nowhere) in /src/shop/broken.test.js. Does the file exist?\x1b[39m
\x1b[90m \x1b[2m❯\x1b[22m loadAndTransform ../node_modules/vite/dist/node/chunks/config.js:\x1b[2m22907:33\x1b[22m\x1b[39m

\x1b[31m\x1b[2m⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯[1/5]⎯\x1b[22m\x1b[39m

\x1b[31m⎯⎯⎯⎯⎯⎯⎯\x1b[39m\x1b[1m\x1b[41m Failed Tests 4 \x1b[49m\x1b[22m\x1b[31m⎯⎯⎯⎯⎯⎯⎯\x1b[39m

\x1b[41m\x1b[1m FAIL \x1b[22m\x1b[49m a.test.js\x1b[2m > \x1b[22mcart\x1b[2m > \x1b[22madds\x1b[2m > \x1b[22mtwo items
\x1b[31m\x1b[1mAssertionError\x1b[22m: expected 2 to be 3 // Object.is equality\x1b[39m

\x1b[32m- Expected\x1b[39m
\x1b[31m+ Received\x1b[39m

\x1b[32m- 3\x1b[39m
\x1b[31m+ 2\x1b[39m

\x1b[36m \x1b[2m❯\x1b[22m a.test.js:\x1b[2m4:43\x1b[22m\x1b[39m

\x1b[31m\x1b[2m⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯[2/5]⎯\x1b[22m\x1b[39m

\x1b[41m\x1b[1m FAIL \x1b[22m\x1b[49m a.test.js\x1b[2m > \x1b[22msame name
\x1b[31m\x1b[1mAssertionError\x1b[22m: expected { a: 1 } to deeply equal { a: 2 }\x1b[39m

\x1b[32m- Expected\x1b[39m
\x1b[31m+ Received\x1b[39m

\x1b[2m  {\x1b[22m
\x1b[32m-   "a": 2,\x1b[39m
\x1b[31m+   "a": 1,\x1b[39m
\x1b[2m  }\x1b[22m

\x1b[36m \x1b[2m❯\x1b[22m a.test.js:\x1b[2m10:111\x1b[22m\x1b[39m

\x1b[31m\x1b[2m⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯[3/5]⎯\x1b[22m\x1b[39m

\x1b[41m\x1b[1m FAIL \x1b[22m\x1b[49m a.test.js\x1b[2m > \x1b[22mis odd 2
\x1b[31m\x1b[1mAssertionError\x1b[22m: expected +0 to be 1 // Object.is equality\x1b[39m

\x1b[32m- Expected\x1b[39m
\x1b[31m+ Received\x1b[39m

\x1b[32m- 1\x1b[39m
\x1b[31m+ 0\x1b[39m

\x1b[36m \x1b[2m❯\x1b[22m a.test.js:\x1b[2m11:58\x1b[22m\x1b[39m

\x1b[31m\x1b[2m⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯[4/5]⎯\x1b[22m\x1b[39m

\x1b[41m\x1b[1m FAIL \x1b[22m\x1b[49m b/a.test.js\x1b[2m > \x1b[22msame name
\x1b[31m\x1b[1mError\x1b[22m: boom\x1b[39m
\x1b[36m \x1b[2m❯\x1b[22m b/a.test.js:\x1b[2m2:33\x1b[22m\x1b[39m

\x1b[31m\x1b[2m⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯[5/5]⎯\x1b[22m\x1b[39m

\x1b[2m Test Files \x1b[22m \x1b[1m\x1b[31m3 failed\x1b[39m\x1b[22m\x1b[2m | \x1b[22m\x1b[1m\x1b[32m1 passed\x1b[39m\x1b[22m\x1b[90m (4)\x1b[39m
\x1b[2m      Tests \x1b[22m \x1b[1m\x1b[31m4 failed\x1b[39m\x1b[22m\x1b[2m | \x1b[22m\x1b[1m\x1b[32m3 passed\x1b[39m\x1b[22m\x1b[2m | \x1b[22m\x1b[33m1 skipped\x1b[39m\x1b[2m | \x1b[22m\x1b[90m1 todo\x1b[39m\x1b[90m (9)\x1b[39m
\x1b[2m   Start at \x1b[22m 19:08:11
\x1b[2m   Duration \x1b[22m 1.33s\x1b[2m (transform 48ms, setup 0ms, collect 45ms, tests 32ms, environment 1ms, prepare 367ms)\x1b[22m
"""

MOCHA = """\

  1) same name
  cart
    - later
  1) fake
    2) same name
    adds
      3) two items
      ✔ three items

  hooks
    4) "before all" hook for "never"

  1 passing (8ms)
  1 pending
  4 failing

  1) same name:
     Error: boom

  2) cart
       same name:
     Error: boom
  2) no
     fake:

  3) cart
       adds
         two items:

      AssertionError [ERR_ASSERTION]: 2 == 3
      + expected - actual

      -2
      +3

  4) hooks
       "before all" hook for "never":
     Error: hook
"""

MOCHA_IN_COLOUR = """\

\x1b[0m\x1b[0m
\x1b[31m  1) same name\x1b[0m
\x1b[0m  cart\x1b[0m
  \x1b[36m  - later\x1b[0m
  1) fake
  \x1b[31m  2) same name\x1b[0m
\x1b[0m    adds\x1b[0m
    \x1b[31m  3) two items\x1b[0m
    \x1b[32m  \x1b[32m✔\x1b[39m\x1b[0m\x1b[90m three items\x1b[0m

\x1b[0m  hooks\x1b[0m
  \x1b[31m  4) "before all" hook for "never"\x1b[0m

\x1b[92m \x1b[0m\x1b[32m 1 passing\x1b[0m\x1b[90m (10ms)\x1b[0m
\x1b[36m \x1b[0m\x1b[36m 1 pending\x1b[0m
\x1b[31m  4 failing\x1b[0m

\x1b[0m  1) same name:
\x1b[0m\x1b[31m     Error: boom\x1b[0m\x1b[90m
\x1b[0m
\x1b[0m  2) cart
       same name:
\x1b[0m\x1b[31m     Error: boom
  2) no
     fake:\x1b[0m\x1b[90m
\x1b[0m
\x1b[0m  3) cart
       adds
         two items:

      \x1b[31mAssertionError [ERR_ASSERTION]: 2 == 3\x1b[0m
      \x1b[32m+ expected\x1b[0m \x1b[31m- actual\x1b[0m

      \x1b[31m-2\x1b[0m
      \x1b[32m+3\x1b[0m
      \x1b[0m\x1b[90m
\x1b[0m
\x1b[0m  4) hooks
       "before all" hook for "never":
\x1b[0m\x1b[31m     Error: hook\x1b[0m\x1b[90m
\x1b[0m
"""

MOCHA_AS_TAP = """\
not ok 1 same name
  boom
  Error: boom
ok 2 cart later # SKIP -
  1) fake
not ok 3 cart same name
  boom
    2) no
       fake:
  Error: boom
    2) no
       fake:
not ok 4 cart adds two items
  2 == 3
  AssertionError [ERR_ASSERTION]: 2 == 3
ok 5 cart adds three items
not ok 6 hooks "before all" hook for "never"
  hook
  Error: hook
# tests 5
# pass 1
# fail 4
1..6
"""

GO = """\
# example.com/shop/build [example.com/shop/build.test]
build/x_test.go:3:28: undefined: nowhere
FAIL: not a result
--- FAIL: TestSame (0.00s)
    a_test.go:3: boom
--- FAIL: TestTable (0.00s)
    --- FAIL: TestTable/three (0.00s)
        a_test.go:4: three
FAIL
FAIL\texample.com/shop/a\t0.003s
--- FAIL: TestSame (0.00s)
    b_test.go:3: boom
--- FAIL: TestPanic (0.00s)
panic: assignment to entry in nil map [recovered]

FAIL\texample.com/shop/b\t0.005s
ok  \texample.com/shop/c\t0.002s
FAIL\texample.com/shop/build [build failed]
FAIL
"""

GO_VERBOSE = """\
=== RUN   TestSame
FAIL: not a result
    a_test.go:3: boom
--- FAIL: TestSame (0.00s)
=== RUN   TestTable
=== RUN   TestTable/one_two
=== RUN   TestTable/three
    a_test.go:4: three
--- FAIL: TestTable (0.00s)
    --- PASS: TestTable/one_two (0.00s)
    --- FAIL: TestTable/three (0.00s)
=== RUN   TestFine
--- PASS: TestFine (0.00s)
=== RUN   TestLater
    a_test.go:6: later
--- SKIP: TestLater (0.00s)
FAIL
FAIL\texample.com/shop/a\t0.009s
=== RUN   TestSame
    b_test.go:3: boom
--- FAIL: TestSame (0.00s)
=== RUN   TestPanic
--- FAIL: TestPanic (0.00s)
panic: assignment to entry in nil map [recovered]

FAIL\texample.com/shop/b\t0.005s
# example.com/shop/build [example.com/shop/build.test]
build/x_test.go:3:28: undefined: nowhere
=== RUN   TestFine
--- PASS: TestFine (0.00s)
PASS
ok  \texample.com/shop/c\t0.002s
FAIL\texample.com/shop/build [build failed]
FAIL
"""

GO_JSON = """\
{"Action":"run","Package":"example.com/shop/a","Test":"TestSame"}
{"Action":"output","Package":"example.com/shop/a","Test":"TestSame","Output":"FAIL: not a result\\n"}
{"Action":"output","Package":"example.com/shop/a","Test":"TestSame","Output":"    a_test.go:3: boom\\n"}
{"Action":"output","Package":"example.com/shop/a","Test":"TestSame","Output":"--- FAIL: TestSame (0.00s)\\n"}
{"Action":"fail","Package":"example.com/shop/a","Test":"TestSame","Elapsed":0}
{"Action":"run","Package":"example.com/shop/a","Test":"TestTable"}
{"Action":"run","Package":"example.com/shop/a","Test":"TestTable/one_two"}
{"Action":"run","Package":"example.com/shop/a","Test":"TestTable/three"}
{"Action":"output","Package":"example.com/shop/a","Test":"TestTable/three","Output":"    a_test.go:4: three\\n"}
{"Action":"output","Package":"example.com/shop/a","Test":"TestTable","Output":"--- FAIL: TestTable (0.00s)\\n"}
{"Action":"output","Package":"example.com/shop/a","Test":"TestTable/one_two","Output":"    --- PASS: TestTable/one_two (0.00s)\\n"}
{"Action":"pass","Package":"example.com/shop/a","Test":"TestTable/one_two","Elapsed":0}
{"Action":"output","Package":"example.com/shop/a","Test":"TestTable/three","Output":"    --- FAIL: TestTable/three (0.00s)\\n"}
{"Action":"fail","Package":"example.com/shop/a","Test":"TestTable/three","Elapsed":0}
{"Action":"fail","Package":"example.com/shop/a","Test":"TestTable","Elapsed":0}
{"Action":"output","Package":"example.com/shop/a","Test":"TestFine","Output":"--- PASS: TestFine (0.00s)\\n"}
{"Action":"pass","Package":"example.com/shop/a","Test":"TestFine","Elapsed":0}
{"Action":"run","Package":"example.com/shop/a","Test":"TestLater"}
{"Action":"output","Package":"example.com/shop/a","Test":"TestLater","Output":"    a_test.go:6: later\\n"}
{"Action":"output","Package":"example.com/shop/a","Test":"TestLater","Output":"--- SKIP: TestLater (0.00s)\\n"}
{"Action":"skip","Package":"example.com/shop/a","Test":"TestLater","Elapsed":0}
{"Action":"output","Package":"example.com/shop/a","Output":"FAIL\\n"}
{"Action":"output","Package":"example.com/shop/a","Output":"FAIL\\texample.com/shop/a\\t0.005s\\n"}
{"Action":"fail","Package":"example.com/shop/a","Elapsed":0.007}
{"Action":"run","Package":"example.com/shop/b","Test":"TestSame"}
{"Action":"output","Package":"example.com/shop/b","Test":"TestSame","Output":"    b_test.go:3: boom\\n"}
{"Action":"output","Package":"example.com/shop/b","Test":"TestSame","Output":"--- FAIL: TestSame (0.00s)\\n"}
{"Action":"fail","Package":"example.com/shop/b","Test":"TestSame","Elapsed":0}
{"Action":"run","Package":"example.com/shop/b","Test":"TestPanic"}
{"Action":"output","Package":"example.com/shop/b","Test":"TestPanic","Output":"--- FAIL: TestPanic (0.00s)\\n"}
{"Action":"output","Package":"example.com/shop/b","Test":"TestPanic","Output":"panic: assignment to entry in nil map [recovered]\\n"}
{"Action":"fail","Package":"example.com/shop/b","Test":"TestPanic","Elapsed":0}
{"Action":"output","Package":"example.com/shop/b","Output":"FAIL\\texample.com/shop/b\\t0.004s\\n"}
{"Action":"fail","Package":"example.com/shop/b","Elapsed":0.004}
# example.com/shop/build [example.com/shop/build.test]
build/x_test.go:3:28: undefined: nowhere
{"Action":"output","Package":"example.com/shop/c","Test":"TestFine","Output":"--- PASS: TestFine (0.00s)\\n"}
{"Action":"pass","Package":"example.com/shop/c","Test":"TestFine","Elapsed":0}
{"Action":"output","Package":"example.com/shop/c","Output":"ok  \\texample.com/shop/c\\t0.002s\\n"}
{"Action":"pass","Package":"example.com/shop/c","Elapsed":0.002}
FAIL\texample.com/shop/build [build failed]
"""

GO_CRASH = """\
exit status 3
FAIL\texample.com/shop/crash\t0.002s
ok  \texample.com/shop/c\t(cached)
FAIL
"""

GO_JSON_CRASH = """\
{"Action":"run","Package":"example.com/shop/a","Test":"TestSame"}
{"Action":"fail","Package":"example.com/shop/a","Test":"TestSame","Elapsed":0}
{"Action":"fail","Package":"example.com/shop/a","Elapsed":0.003}
{"Action":"run","Package":"example.com/shop/crash","Test":"TestX"}
{"Action":"output","Package":"example.com/shop/crash","Output":"FAIL\\texample.com/shop/crash\\t0.002s\\n"}
{"Action":"fail","Package":"example.com/shop/crash","Elapsed":0.002}
"""

CARGO = """\
    Finished `test` profile [unoptimized + debuginfo] target(s) in 0.02s
     Running unittests src/lib.rs (target/debug/deps/shop-507999230d6984fa)

running 3 tests
test tests::later ... ignored
test tests::fine ... ok
test tests::same ... FAILED

failures:

---- tests::same stdout ----
failures:
    fake::test

test fake ... FAILED

thread 'tests::same' (17605) panicked at src/lib.rs:7:88:
boom

failures:
    tests::same

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.12s

error: test failed, to rerun pass `--lib`
     Running tests/api.rs (target/debug/deps/api-9bcfde99a7c554b8)

running 2 tests
test tests::other ... FAILED
test tests::same ... FAILED

failures:

---- tests::other stdout ----
Error: "no"

---- tests::same stdout ----

thread 'tests::same' (17608) panicked at tests/api.rs:2:33:
explicit panic

failures:
    tests::other
    tests::same

test result: FAILED. 0 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.11s

error: test failed, to rerun pass `--test api`
   Doc-tests shop

running 1 test
test src/lib.rs - two (line 1) ... FAILED

failures:

---- src/lib.rs - two (line 1) stdout ----
Test executable failed (exit status: 101).

stderr:

thread 'main' (17633) panicked at /tmp/rustdoctestcXlyNs/doctest_bundle_2024.rs:6:1:
assertion `left == right` failed
  left: 2
 right: 3

failures:
    src/lib.rs - two (line 1)

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.11s

all doctests ran in 0.35s; merged doctests compilation took 0.23s
error: doctest failed, to rerun pass `--doc`
error: 3 targets failed:
    `--lib`
    `--test api`
    `--doc`
"""

CARGO_IN_COLOUR = """\
\x1b[1m\x1b[92m    Finished\x1b[0m `test` profile [unoptimized + debuginfo] target(s) in 0.01s
\x1b[1m\x1b[92m     Running\x1b[0m unittests src/lib.rs (target/debug/deps/shop-507999230d6984fa)

running 3 tests
test tests::later ... \x1b[33mignored\x1b(B\x1b[m
test tests::fine ... \x1b[32mok\x1b(B\x1b[m
test tests::same ... \x1b[31mFAILED\x1b(B\x1b[m

failures:

---- tests::same stdout ----
failures:
    fake::test

test fake ... FAILED

thread 'tests::same' (17675) panicked at src/lib.rs:7:88:
boom

failures:
    tests::same

test result: \x1b[31mFAILED\x1b(B\x1b[m. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.11s

\x1b[1m\x1b[91merror\x1b[0m: test failed, to rerun pass `--lib`
"""

CARGO_ABORT = """\
   Compiling shop v0.1.0 (/src/shop)
    Finished `test` profile [unoptimized + debuginfo] target(s) in 0.19s
     Running unittests src/lib.rs (target/debug/deps/shop-507999230d6984fa)

running 2 tests
error: test failed, to rerun pass `--lib`

Caused by:
  process didn't exit successfully: `/src/shop/target/debug/deps/shop-507999230d6984fa` (signal: 6, SIGABRT: process abort signal)
"""

PHPUNIT = """\
PHPUnit 9.6.7 by Sebastian Bergmann and contributors.

F.ES.F                                                              6 / 6 (100%)

Time: 00:00.005, Memory: 4.00 MB

There was 1 error:

1) CartTest::testError
RuntimeException: 1) Fake::test

/src/shop/tests/CartTest.php:6

--

There were 2 failures:

1) CartTest::testTwo
Failed asserting that 2 is identical to 3.

/src/shop/tests/CartTest.php:4

2) CartTest::testOdd with data set "named" (2, stdClass Object ())
Failed asserting that 0 is identical to 1.

/src/shop/tests/CartTest.php:10

ERRORS!
Tests: 6, Assertions: 4, Errors: 1, Failures: 2, Skipped: 1.
"""

RSPEC = """\
*F.FFrspec ./spec/fake_spec.rb:1 # fake
.F

Pending: (Failures listed here are expected and do not affect your suite's status)

  1) cart later
     # No reason given
     Failure/Error: it('later') { pending; raise 'x' }

     RuntimeError:
       x
     # ./spec/a_spec.rb:6:in `block (2 levels) in <top (required)>'

Failures:

  1) cart same
     Failure/Error: it('same') { raise 'boom' }

     RuntimeError:
       boom
     # ./spec/a_spec.rb:7:in `block (2 levels) in <top (required)>'

  2) cart each
     Failure/Error: [1,2].each { |n| it('each') { expect(n).to eq 1 } }

       expected: 1
            got: 2

       (compared using ==)
     # ./spec/a_spec.rb:8:in `block (3 levels) in <top (required)>'

  3) cart adds two items
     Failure/Error: it('two items') { expect(1+1).to eq 3 }

       expected: 3
            got: 2

       (compared using ==)
     # ./spec/a_spec.rb:3:in `block (3 levels) in <top (required)>'

  4) cart same
     Failure/Error: RSpec.describe('cart') { it('same') { raise 'boom' } }

     RuntimeError:
       boom
     # ./spec/b/a_spec.rb:1:in `block (2 levels) in <top (required)>'

Finished in 0.01943 seconds (files took 0.11911 seconds to load)
7 examples, 4 failures, 1 pending

Failed examples:

rspec ./spec/a_spec.rb:7 # cart same
rspec ./spec/a_spec.rb[1:5] # cart each
rspec ./spec/a_spec.rb:3 # cart adds two items
rspec ./spec/b/a_spec.rb:1 # cart same
"""

RSPEC_BROKEN = """\

An error occurred while loading ./spec/broken_spec.rb.
Failure/Error: nowhere

NameError:
  undefined local variable or method `nowhere' for main:Object

  nowhere
  ^^^^^^^
# ./spec/broken_spec.rb:1:in `<top (required)>'

Finished in 0.00006 seconds (files took 0.12608 seconds to load)
0 examples, 0 failures, 1 error occurred outside of examples
"""

JS_IDS = {
    "a.test.js > same name",
    "a.test.js > is odd 2",
    "b/a.test.js > same name",
}
MOCHA_IDS = {"same name", "cart > same name", "cart > adds > two items", 'hooks > "before all" hook for "never"'}
GO_IDS = {
    "example.com/shop/a.TestSame",
    "example.com/shop/a.TestTable/three",
    "example.com/shop/b.TestSame",
    "example.com/shop/b.TestPanic",
    "example.com/shop/build [build failed]",
}
CARGO_IDS = {
    "shop src/lib.rs tests::same",
    "api tests/api.rs tests::same",
    "api tests/api.rs tests::other",
    "shop src/lib.rs - two",
}
RECORDED: dict[str, tuple[str, set[str], Tally | None]] = {
    "jest": (
        JEST,
        JS_IDS | {"a.test.js > cart › adds › two items", "broken.test.js > Test suite failed to run"},
        Tally(3, 4, 2),
    ),
    "jest in colour": (
        JEST_IN_COLOUR,
        JS_IDS | {"a.test.js > cart › adds › two items", "broken.test.js > Test suite failed to run"},
        Tally(3, 4, 2),
    ),
    "vitest": (VITEST, JS_IDS | {"a.test.js > cart > adds > two items", "broken.test.js"}, Tally(3, 4, 2)),
    "mocha": (MOCHA, MOCHA_IDS, Tally(1, 4, 1)),
    "mocha in colour": (MOCHA_IN_COLOUR, MOCHA_IDS, Tally(1, 4, 1)),
    "mocha as TAP": (MOCHA_AS_TAP, {name.replace(" > ", " ") for name in MOCHA_IDS}, Tally(1, 4, 0)),
    "go": (GO, GO_IDS, None),
    "go -v": (GO_VERBOSE, GO_IDS, Tally(3, 5, 1)),
    "go -json": (GO_JSON, GO_IDS, Tally(3, 5, 1)),
    "cargo": (CARGO, CARGO_IDS, Tally(1, 4, 1)),
    "cargo in colour": (CARGO_IN_COLOUR, {"shop src/lib.rs tests::same"}, Tally(1, 1, 1)),
    "phpunit": (
        PHPUNIT,
        {"CartTest::testError", "CartTest::testTwo", 'CartTest::testOdd with data set "named"'},
        Tally(2, 3, 1),
    ),
    "rspec": (
        RSPEC,
        {
            "spec/a_spec.rb # cart same",
            "spec/b/a_spec.rb # cart same",
            "spec/a_spec.rb # cart each",
            "spec/a_spec.rb # cart adds two items",
        },
        Tally(2, 4, 1),
    ),
    "rspec, broken": (RSPEC_BROKEN, {"while loading ./spec/broken_spec.rb"}, Tally(0, 1, 0)),
}


def failed(output: bytes, root: str = "") -> set[str] | None:
    found = failed_tests(output, root)
    return None if found is None else set(found)


def failed_junit(data: bytes, root: str = "") -> set[str] | None:
    found = failed_in_junit(data, root)
    return None if found is None else set(found)


recorded = pytest.mark.parametrize(("output", "ids", "told"), RECORDED.values(), ids=RECORDED)


# --- recorded output --------------------------------------------------------------------------------


@recorded
def test_what_failed_is_read(output: str, ids: set[str], told: Tally | None) -> None:
    assert failed(output.encode()) == ids
    assert tally(output.encode()) == told


@recorded
def test_line_ends_and_broken_bytes_change_nothing(output: str, ids: set[str], told: Tally | None) -> None:
    noisy = (
        b"caf\xe9 \xff\xfe\x00\r\nwarning: something\n"
        + output.replace("\n", "\r\n").encode()
        + b"\r\nmake: *** Error 1"
    )
    assert failed(noisy) == ids
    assert tally(noisy) == told
    assert failed(b"  0%\r100%\r" + output.encode()) == ids


@recorded
def test_an_output_without_its_end_is_not_read(output: str, ids: set[str], told: Tally | None) -> None:
    """Where several packages speak one after the other, nobody can see that a whole one is missing."""
    lines = output.splitlines(keepends=True)
    parts = {frozenset(failed("".join(lines[:end]).encode()) or ids) for end in range(len(lines))}
    several = output in (GO_JSON, CARGO)
    assert parts == {frozenset(ids)} or several
    assert failed("".join(lines[: len(lines) // 5]).encode()) is None


@pytest.mark.parametrize(
    ("output", "end"),
    [
        (GO_JSON, '{"Action":"fail","Package":"example.com/shop/b","Elapsed"'),
        (CARGO, "\nrunning 2 tests"),
        (CARGO, "test tests::other ... FAILED"),
        (CARGO, "\nrunning 1 test\n"),
    ],
)
def test_a_package_that_began_has_to_end(output: str, end: str) -> None:
    assert failed(output[: output.index(end)].encode()) is None


@pytest.mark.parametrize("output", [GO_CRASH, GO_JSON_CRASH, CARGO_ABORT, "", "Segmentation fault (core dumped)\n"])
def test_a_crash_names_no_test(output: str) -> None:
    assert failed(output.encode()) is None


@pytest.mark.parametrize(
    "output",
    [
        JEST.replace("  ● is odd 2\n", ""),
        JEST.replace("FAIL ./broken.test.js\n  ● Test suite failed to run\n", ""),
        VITEST.replace("a.test.js\x1b[2m > \x1b[22mis odd 2", ""),
        VITEST + "     Errors  1 error\n",
        MOCHA.replace("  3) cart\n", ""),
        CARGO.replace("    tests::other\n", ""),
        PHPUNIT.replace("2) CartTest", "3) CartTest"),
        RSPEC.replace("rspec ./spec/a_spec.rb:7 # cart same\n", ""),
        MOCHA_AS_TAP.replace("ok 5 cart adds three items\n", ""),
        MOCHA_AS_TAP + "Bail out!\n",
        GO.replace("--- FAIL: TestPanic (0.00s)\n", "").replace("--- FAIL: TestSame (0.00s)\n", ""),
    ],
    ids=lambda output: str(output)[:20],
)
def test_fewer_names_than_failures_are_no_answer(output: str) -> None:
    assert failed(output.encode()) is None


def test_two_programs_in_one_output_are_both_read() -> None:
    assert failed((JEST + GO + MOCHA).encode()) == RECORDED["jest"][1] | GO_IDS | MOCHA_IDS
    assert tally((JEST + MOCHA).encode()) == Tally(4, 8, 3)
    assert failed((JEST + GO_CRASH).encode()) is None
    assert failed((JEST + JEST.partition("Test Suites:")[0]).encode()) is None


def test_the_order_of_stdout_and_stderr_does_not_matter() -> None:
    """Cargo names its targets on stderr, vitest its failures; a log may have that after all of stdout."""
    words = ("Compiling", "Finished", "Running", "Doc-tests", "error:")
    lines = CARGO.splitlines(keepends=True)
    aside = [line for line in lines if line.lstrip().startswith(words)]
    stdout, stderr = "".join(line for line in lines if line not in aside), "".join(aside)
    assert failed((stdout + stderr).encode()) == CARGO_IDS
    assert failed((stdout + stderr[: stderr.index("   Doc-tests")]).encode()) is None
    begin, end = VITEST.index("\x1b[31m⎯"), VITEST.index("\x1b[2m Test Files")
    stdout, stderr = VITEST[:begin] + VITEST[end:], VITEST[begin:end]
    assert failed((stdout + stderr).encode()) == RECORDED["vitest"][1]
    assert failed((stdout + stderr[: len(stderr) // 2]).encode()) is None


def test_cargo_that_says_more_is_read_too() -> None:
    binary = "/src/shop/target/debug/deps/api-9bcfde99a7c554b8"
    verbose = CARGO.replace("tests/api.rs (target/debug/deps/api-9bcfde99a7c554b8)", f"`{binary} --test-threads 1`")
    assert "--test-threads" in verbose
    ids = {name.replace("api tests/api.rs", "api") for name in CARGO_IDS}
    assert failed(verbose.encode()) == ids


def test_tests_that_look_the_same_are_numbered() -> None:
    twice = "".join(
        line for line in CARGO.splitlines(keepends=True) if "Running" not in line and "Doc-tests" not in line
    )
    assert failed(twice.encode()) == {"tests::same", "tests::same #2", "tests::other", "src/lib.rs - two"}


def test_the_same_failure_shown_twice_is_one() -> None:
    head, _, tail = JEST.partition("Test Suites:")
    again = head[head.index("FAIL ./a.test.js") :]
    assert failed(f"{head}Summary of all failing tests\n{again}Test Suites:{tail}".encode()) == RECORDED["jest"][1]


def test_go_in_one_folder_ends_without_a_last_word() -> None:
    local = "--- FAIL: TestSame (0.00s)\n    a_test.go:3: boom\nFAIL\nexit status 1\nFAIL\texample.com/shop/a\t0.002s\n"
    assert failed(local.encode()) == {"example.com/shop/a.TestSame"}


def test_what_a_passing_go_package_printed_is_no_result() -> None:
    fake = "--- FAIL: TestFake (0.00s)\nok  \texample.com/shop/c\t0.002s\n"
    assert failed((fake + GO).encode()) == GO_IDS


@pytest.mark.parametrize(
    "line",
    [
        "FAIL Required test coverage of 90% not reached. Total coverage: 12.00%",
        'Jest: "global" coverage threshold for statements (90%) not met: 12%',
        "ERROR: Coverage for lines (12%) does not meet global threshold (90%)",
    ],
)
def test_too_little_coverage_has_an_id_of_its_own(line: str) -> None:
    assert failed(f"3 passed in 0.10s\n{line}\n".encode()) == {"coverage threshold"}
    assert failed(b"3 passed in 0.10s\n") is None
    assert failed(line.encode()) is None


def test_a_cut_output_is_read_only_where_its_end_counts_all() -> None:
    padding = b"x" * 99 + b"\n"
    long = padding * (LIMIT // len(padding) + 1)
    assert failed(long + MOCHA.encode()) == MOCHA_IDS
    assert failed(long + GO.encode()) is None
    assert tally(long + CARGO.encode()) == Tally(1, 4, 1)


# --- pytest, for real -------------------------------------------------------------------------------

SUITE = """
import os, subprocess, sys, unittest, pytest

def test_two():
    print("FAILED tests/fake.py::test_fake - no")
    print("=" * 27, "short test summary info", "=" * 28)
    print("FAILED tests/fake.py::test_other - no")
    assert 1 + 1 == 3

def test_fine():
    print("=" * 27, "short test summary info", "=" * 28)
    print("FAILED tests/fake.py::test_passing - no")

@pytest.mark.parametrize("text", ["a - b", "e", "f g"])
def test_param(text):
    assert text == "e", "a - message [with] - all"

@pytest.fixture
def bad():
    raise RuntimeError("bad")

def test_setup(bad):
    pass

@pytest.fixture
def late():
    yield
    raise RuntimeError("late")

def test_both(late):
    assert False

@pytest.mark.skip
def test_later():
    pass

@pytest.mark.xfail
def test_expected():
    assert False

class TestGroup:
    def test_two(self):
        assert False
"""
PYTEST_IDS = {
    "tests/test_a.py::test_two",
    "tests/sub/test_b.py::test_two",
    "tests/test_a.py::test_param[a - b]",
    "tests/test_a.py::test_param[f g]",
    "tests/test_a.py::test_setup",
    "tests/test_a.py::test_both",
    "tests/test_a.py::test_both #2",
    "tests/test_a.py::TestGroup::test_two",
}


def run(folder: Path, *command: str) -> bytes:
    """The output of a command that fails, as a gate's log has it."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "HOME") if name in os.environ}
    done = subprocess.run(
        command,
        cwd=folder,
        env=kept,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    assert done.returncode != 0, done.stdout.decode()
    return done.stdout


def run_pytest(folder: Path, *options: str) -> bytes:
    return run(folder, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options)


def write(folder: Path, **files: str) -> Path:
    """`sub_test_b` is the file `tests/sub/test_b.py`."""
    for name, text in files.items():
        file = folder / "tests" / f"{name.replace('sub_', 'sub/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write(tmp_path, test_a=SUITE, sub_test_b="def test_two():\n    assert False\n")


@pytest.mark.parametrize("options", ["", "-q", "-v", "-rA", "--tb=no", "-q -rA --tb=short --color=yes", "-vv -n2"])
def test_pytest_names_its_failures(suite: Path, options: str) -> None:
    output = run_pytest(suite, *options.split())
    assert failed(output, str(suite)) == PYTEST_IDS
    assert tally(output) == Tally(2, 8, 2)


def test_pytest_that_stops_early_names_what_it_saw(suite: Path) -> None:
    assert failed(run_pytest(suite, "-q", "-x")) == {"tests/sub/test_b.py::test_two"}


@pytest.mark.parametrize("options", ["-v", "-q"])
def test_a_printed_summary_ends_no_run(tmp_path: Path, options: str) -> None:
    text = "def test_two():\n    print('5 passed in 0.01s')\n    assert False\ndef test_three():\n    assert False\n"
    output = run_pytest(write(tmp_path, test_a=text), options)
    assert failed(output) == {"tests/test_a.py::test_two", "tests/test_a.py::test_three"}
    assert options == "-q" or tally(output) == Tally(0, 2, 0)


def test_dashes_in_the_name_of_a_folder_begin_no_message() -> None:
    line = "FAILED my - tests/test_a.py::test_a - assert 0"
    output = f"=== short test summary info ===\n{line}\n1 failed in 0.10s\n"
    assert failed(output.encode()) == {"my - tests/test_a.py::test_a"}


def test_where_an_object_lay_is_no_part_of_an_id(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.parametrize('it', [object()], ids=str)\ndef test_it(it):\n    assert False\n"
    output = run_pytest(write(tmp_path, test_a=text))
    assert failed(output) == {"tests/test_a.py::test_it[<object object at 0x…>]"}


def test_subtests_have_ids_of_their_own(tmp_path: Path) -> None:
    text = (
        "def test_all(subtests):\n    for i in range(3):\n        with subtests.test(i=i):\n            assert i == 1\n"
    )
    node = "tests/test_a.py::test_all"
    assert failed(run_pytest(write(tmp_path, test_a=text))) == {node, f"{node} (i=0)", f"{node} (i=2)"}


def test_a_file_that_can_not_be_imported_is_its_own_id(suite: Path) -> None:
    write(suite, test_broken="import nowhere\n", test_worse="def (\n")
    for options in ((), ("-q", "--tb=no")):
        assert failed(run_pytest(suite, *options)) == {"tests/test_broken.py", "tests/test_worse.py"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("-v", "import os\ndef test_bad(): assert False\ndef test_end(): os.abort()\n"),
        ("-q", "import os\ndef test_bad(): assert False\ndef test_end(): os.abort()\n"),
        ("-v", "def test_bad(): assert False\ndef test_end(): raise KeyboardInterrupt\n"),
        ("-q", "def test_bad(): assert False\ndef test_end(): raise KeyboardInterrupt\n"),
        ("-q", "import pytest\ndef test_bad(): assert False\ndef test_end(): pytest.exit('enough', 1)\n"),
        ("-q", ""),
    ],
    ids=["abort", "quiet abort", "interrupt", "quiet interrupt", "exit", "no tests"],
)
def test_pytest_that_did_not_get_through_names_nothing(tmp_path: Path, options: str, text: str) -> None:
    assert failed(run_pytest(write(tmp_path, test_a=text), options)) is None


def test_an_internal_error_names_nothing(suite: Path) -> None:
    write(
        suite, conftest="def pytest_runtest_logfinish(nodeid):\n    if 'both' in nodeid: raise RuntimeError(nodeid)\n"
    )
    output = run_pytest(suite, "-q")
    assert b"INTERNALERROR" in output
    assert failed(output) is None


@pytest.mark.parametrize("options", ["-v", "-q -rA"])
def test_pytest_without_its_end_names_nothing(suite: Path, options: str) -> None:
    lines = run_pytest(suite, *options.split()).rstrip(b"\n").split(b"\n")
    for end in range(0, len(lines)):
        assert failed(b"\n".join(lines[:end])) is None


def test_hidden_failures_are_no_answer(suite: Path) -> None:
    assert failed(run_pytest(suite, "-rE")) is None
    assert failed(run_pytest(suite, "-qq")) is None


def test_a_run_of_pytest_inside_a_test_is_not_ours(tmp_path: Path) -> None:
    inner = write(tmp_path / "inner", test_in="def test_in():\n    assert False\n")
    outer = f"import subprocess, sys\ndef test_out():\n    subprocess.run([sys.executable, '-m', 'pytest', {str(inner)!r}], cwd={str(inner)!r})\n    assert False\n"
    output = run_pytest(write(tmp_path / "outer", test_out=outer))
    assert b"FAILED tests/test_in.py::test_in" in output
    assert failed(output) == {"tests/test_out.py::test_out"}
    assert tally(output) == Tally(0, 1, 0)
    assert failed(run_pytest(tmp_path / "outer", "-rN")) is None


def test_what_tests_print_of_other_programs_is_not_ours(tmp_path: Path) -> None:
    text = f"def test_out():\n    print({JEST + GO + CARGO!r})\n    assert False\n"
    assert failed(run_pytest(write(tmp_path, test_a=text))) == {"tests/test_a.py::test_out"}


@pytest.mark.parametrize("options", ["", "-q"])
def test_one_run_after_the_other_counts_both(tmp_path: Path, options: str) -> None:
    one = run_pytest(write(tmp_path, test_a="def test_a():\n    assert False\n"), *options.split())
    output = one + one.replace(b"test_a", b"test_b")
    assert failed(output) == {"tests/test_a.py::test_a", "tests/test_b.py::test_b"}
    assert tally(output) == Tally(0, 2, 0)
    assert failed(output[: output.rindex(b" in ")]) is None


def test_a_junit_file_tells_the_same(suite: Path) -> None:
    command = f"{sys.executable} -m pytest -p no:cacheprovider --junitxml=out/report.xml"
    run(suite, *command.split())
    (path,) = junit_paths(command)
    data = (suite / path).read_bytes()
    assert failed_junit(data, str(suite)) == {
        "pytest > tests.test_a > test_two",
        "pytest > tests.sub.test_b > test_two",
        "pytest > tests.test_a > test_param[a - b]",
        "pytest > tests.test_a > test_param[f g]",
        "pytest > tests.test_a > test_setup",
        "pytest > tests.test_a > test_both",
        "pytest > tests.test_a > test_both #2",
        "pytest > tests.test_a.TestGroup > test_two",
    }
    assert failed(b"noise\n" + data) == failed_junit(data)
    assert tally(data) == Tally(2, 8, 2)


def test_reports_and_runs_can_be_one_inside_the_other(tmp_path: Path) -> None:
    report = "<testsuite name='s'>\n<testcase name='bad'><failure/></testcase>\n</testsuite>"
    text = f"def test_out():\n    print({report!r})\n    assert False\n"
    output = run_pytest(write(tmp_path, test_a=text))
    assert report.encode() in output
    assert failed(output) == {"tests/test_a.py::test_out"}
    around = report.replace(
        "<failure/>", f"<failure/><system-out><![CDATA[\n{output.decode().replace(']]', '')}\n]]></system-out>"
    )
    assert failed(around.replace(report, "").encode()) == {"s > bad"}


# --- unittest, for real -----------------------------------------------------------------------------

UNITTEST = '''
import unittest

class TestCart(unittest.TestCase):
    def test_two(self):
        """Says what it is for."""
        print("FAIL: test_fake (tests.TestCart.test_fake)")
        self.assertEqual(1 + 1, 3)
    def test_error(self):
        raise RuntimeError("FAILED (failures=7)")
    def test_parts(self):
        for i in range(3):
            with self.subTest("part", i=i):
                self.assertEqual(i, 1)
    def test_fine(self):
        pass
    @unittest.skip("later")
    def test_later(self):
        pass
    @unittest.expectedFailure
    def test_expected(self):
        self.fail()
    @unittest.expectedFailure
    def test_unexpected(self):
        pass

class TestBroken(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise RuntimeError("no")
    def test_never(self):
        pass
'''


@pytest.mark.parametrize("options", [(), ("-v",), ("-b",)])
def test_unittest_names_its_failures(tmp_path: Path, options: tuple[str, ...]) -> None:
    write(
        tmp_path,
        __init__="",
        test_a=UNITTEST,
        test_b=UNITTEST.partition("class TestBroken")[0],
        test_c="import nowhere",
    )
    output = run(tmp_path, sys.executable, "-m", "unittest", *options)
    names = ("test_two", "test_error", "test_unexpected")
    plain = {f"{name} (tests.test_{file}.TestCart.{name})" for file in "ab" for name in names}
    parts = {f"test_parts (tests.test_{file}.TestCart.test_parts) [part] (i={i})" for file in "ab" for i in (0, 2)}
    broken = {"setUpClass (tests.test_a.TestBroken)", "tests.test_c (unittest.loader._FailedTest.tests.test_c)"}
    assert failed(output) == plain | parts | broken
    told = tally(output)
    assert told is not None
    assert (told.failed, told.skipped) == (12, 4)


def test_unittest_without_its_end_names_nothing(tmp_path: Path) -> None:
    lines = run(write(tmp_path, __init__="", test_a=UNITTEST), sys.executable, "-m", "unittest").split(b"\n")
    last = max(at for at, line in enumerate(lines) if line.startswith(b"FAILED ("))
    for end in range(last + 1):
        assert failed(b"\n".join(lines[:end])) is None


# --- node, for real ---------------------------------------------------------------------------------

NODE = """
import { test, describe, it } from 'node:test'
import assert from 'node:assert'
describe('cart', () => {
  describe('adds', () => {
    it('two # items', () => { assert.equal(1 + 1, 3) })
    it('three items', () => {})
  })
  it.skip('later', () => {})
  it.todo('some day', () => { throw new Error('todo') })
})
test('same name', () => { console.log('not ok 7 - fake\\n✖ fake (1ms)'); throw new Error('boom') })
"""


@pytest.fixture
def javascript(tmp_path: Path) -> Path:
    if shutil.which("node") is None:
        pytest.skip("needs node")
    (tmp_path / "b").mkdir()
    (tmp_path / "a.test.mjs").write_text(NODE)
    (tmp_path / "b/a.test.mjs").write_text(
        "import { test } from 'node:test'\ntest('same name', () => { throw new Error() })\n"
    )
    (tmp_path / "broken.test.mjs").write_text("import './nowhere.mjs'\n")
    return tmp_path


def test_node_names_its_failures_as_tap(javascript: Path) -> None:
    output = run(javascript, "node", "--test", "--test-reporter=tap")
    ids = {
        "a.test.mjs > cart > adds > two # items",
        "a.test.mjs > same name",
        "b/a.test.mjs > same name",
        "broken.test.mjs",
    }
    assert failed(output, str(javascript)) == ids
    assert tally(output) == Tally(1, 4, 2)
    lines = output.splitlines(keepends=True)
    assert all(failed(b"".join(lines[:end]), str(javascript)) in (None, ids) for end in range(len(lines)))


def test_node_names_its_failures_as_spec(javascript: Path) -> None:
    output = run(javascript, "node", "--test", "--test-reporter=spec")
    ids = {"a.test.mjs > two # items", "a.test.mjs > same name", "b/a.test.mjs > same name", "broken.test.mjs"}
    assert failed(output, str(javascript)) == ids
    assert tally(output) == Tally(1, 4, 2)
    lines = output.splitlines(keepends=True)
    assert all(failed(b"".join(lines[:end]), str(javascript)) in (None, ids) for end in range(len(lines)))


def test_node_names_its_failures_as_junit(javascript: Path) -> None:
    output = run(javascript, "node", "--test", "--test-reporter=junit")
    assert failed(output, str(javascript)) == {
        "cart > adds > test > two # items",
        "test > same name",
        "test > same name #2",
        "test > broken.test.mjs",
    }
    assert tally(output) == Tally(1, 4, 2)


def test_ids_do_not_depend_on_where_it_ran(javascript: Path) -> None:
    """Without a root, too, as far as a name and its folder go."""
    moved = javascript.parent / "moved"
    before = run(javascript, "node", "--test", "--test-reporter=tap")
    shutil.copytree(javascript, moved)
    after = run(moved, "node", "--test", "--test-reporter=tap")
    assert failed(before, str(javascript)) == failed(after, f"{moved}/")
    assert str(javascript.parent) not in str(failed(before))


# --- JUnit ------------------------------------------------------------------------------------------


def suite_of(*cases: str, attributes: str = "") -> bytes:
    return f"<testsuites><testsuite name='s' {attributes}>{''.join(cases)}</testsuite></testsuites>".encode()


def test_junit_tells_files_apart() -> None:
    cases = [f"<testcase name='same' file='{name}/a.php' classname='C'><error/></testcase>" for name in ("one", "two")]
    assert failed_junit(suite_of(*cases)) == {"s > one/a.php > C > same", "s > two/a.php > C > same"}


def test_a_suite_that_failed_as_a_whole_is_named() -> None:
    assert failed_junit(suite_of("<testcase name='fine'/>", "<error/>")) == {"s > (as a whole)"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<testsuites/>",
        b"no xml at all",
        suite_of("<testcase name='fine'/>"),
        suite_of("<testcase name='later'><skipped/></testcase>"),
        suite_of("<testcase name='fine'/>", attributes="errors='1'"),
        suite_of("<testsuite errors='1'/>", "<testcase name='bad'><failure/></testcase>"),
        suite_of("<testcase name='bad'><failure/></testcase>")[:-5],
        suite_of("<testcase name='bad'><failure/></testcase>") * 2,
        b"<?xml version='1.0' encoding='nowhere'?>" + suite_of("<testcase name='bad'><failure/></testcase>"),
        b"<?xml version='1.0' encoding='rot13'?>" + suite_of("<testcase name='bad'><failure/></testcase>"),
        b"<?xml version='1.0' encoding='shift_jis'?>" + suite_of("<testcase name='bad'><failure/></testcase>"),
        suite_of("<testcase name='\xff'><failure/></testcase>").replace("ÿ".encode(), b"\xff"),
    ],
)
def test_a_report_that_names_no_failure_is_no_answer(data: bytes) -> None:
    assert failed_junit(data) is None


@pytest.mark.parametrize(
    "declared",
    [
        "<!DOCTYPE x>",
        "<!DOCTYPE x SYSTEM 'file:///etc/hostname'>",
        "<!DOCTYPE x [<!ENTITY who SYSTEM 'file:///etc/hostname'>]>",
        "<!DOCTYPE x [<!ENTITY a 'ha'><!ENTITY who '&a;&a;&a;&a;'>]>",
    ],
)
def test_document_types_are_refused(declared: str) -> None:
    report = suite_of("<testcase name='bad'><failure/></testcase>")
    assert failed_junit(report) == {"s > bad"}
    assert failed_junit(declared.encode() + report) is None


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("pytest --junitxml=out.xml -q", ["out.xml"]),
        ("pytest --junit-xml out/r.xml; echo done", ["out/r.xml"]),
        ("pytest --junitxml=a.xml && vitest run --reporter=junit --outputFile=b.xml", ["a.xml", "b.xml"]),
        ("vitest --outputFile.junit 'with space.xml'", ["with space.xml"]),
        ("gotestsum --junitfile unit.xml -- ./...", ["unit.xml"]),
        ("(pytest --junitxml=out.xml)", ["out.xml"]),
        ("pytest --junitxml=out.xml>log", ["out.xml"]),
        ("phpunit --log-junit j.xml # all", ["j.xml"]),
        ("pytest --junitxml=$OUT/r.xml", []),
        ("pytest --junitxml=~/r.xml", []),
        ("pytest --junitxml", []),
        ("pytest --junitxml && true", []),
        ("pytest --junitxml=", []),
        ("pytest --junitxml='never ends", []),
        ("pytest --junitxmlish=a.xml", []),
        ("", []),
    ],
)
def test_report_files_are_found_in_commands(command: str, paths: list[str]) -> None:
    assert junit_paths(command) == paths


# --- hostile output ---------------------------------------------------------------------------------

LINES = sorted({line for output, _, _ in RECORDED.values() for line in output.splitlines()})


def check(output: bytes) -> None:
    found = failed(output, "/src/shop")
    assert found is None or (
        found and all(len(name) < 1000 and "\n" not in name and "\x1b[" not in name for name in found)
    )
    told = tally(output)
    assert told is None or min(told.passed, told.failed, told.skipped) >= 0


@given(st.binary())
def test_no_bytes_crash_it(output: bytes) -> None:
    check(output)
    assert failed_junit(output) is None


@given(st.lists(st.sampled_from(LINES) | st.text(max_size=20), max_size=40))
def test_no_mixture_of_lines_crashes_it(lines: list[str]) -> None:
    check("\n".join(lines).encode("utf-8", "surrogatepass"))


@given(st.text())
def test_no_command_crashes_it(command: str) -> None:
    assert all(junit_paths(command))


@settings(deadline=None)
@given(st.sampled_from(sorted(RECORDED)), st.data())
def test_lines_that_get_lost_hide_no_failure_that_is_counted(name: str, data: st.DataObject) -> None:
    """Of an output that counts its failures, at least as many ids are left, or there is no answer."""
    output, _, told = RECORDED[name]
    lines = output.splitlines(keepends=True)
    lost = data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=5))
    left = "".join(line for at, line in enumerate(lines) if at not in lost).encode()
    found, counted = failed(left), tally(left)
    if found is not None and counted == told and told and not name.startswith("go"):
        assert len(found) >= told.failed


@pytest.mark.parametrize(
    "piece",
    [
        "=",
        "\r",
        "\x1b[0",
        "FAIL a (1.0 s",
        "FAIL a\n  ● x\n",
        "--- FAIL: " + "a/" * 900 + " (0.00s)\n",
        "    not ok 1 - a\n1..9\n",
        "  1 failing\n  1) a\n",
        "<testsuite name='a'>\n",
        "1 failed in 1.0s\n",
        "FAILED a[ - ",
        "Ran 1 test in 1s\nFAILED (" + "a " * 900 + ")\n",
        "failures:\n    a\n",
    ],
    ids=lambda piece: repr(piece)[:20],
)
def test_hostile_output_takes_no_time_worth_mentioning(piece: str) -> None:
    output = (piece * (LIMIT // 16 // len(piece))).encode()
    began = time.monotonic()
    check(output)
    check(b"=== short test summary info ===\nFAILED " + output + b"\n1 failed in 1.0s\n")
    assert time.monotonic() - began < 60

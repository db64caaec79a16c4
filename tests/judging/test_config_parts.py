"""What the configuration of a test program consists of."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from judging.test_test_side import change, serve

from ralphtool.judging.config_parts import find_config_parts

IMPORTS = 'import shared from "./build/shared.js";\nexport default { test: { ...shared } };\n'
REQUIRES = 'const base = require("./build/shared");\n'


@pytest.mark.parametrize(
    ("path", "files", "is_found"),
    [
        ("build/shared.js", {"vitest.config.js": IMPORTS}, True),
        ("build/shared.js", {"jest.config.js": REQUIRES}, True),
        ("build/shared.js", {"web/vitest.config.ts": 'import a from "../build/shared.js"\n'}, True),
        ("jest.preset.js", {"web/jest.config.ts": 'export default { preset: "../jest.preset.js" };\n'}, True),
        ("jest.preset.js", {"package.json": '{"jest": {"preset": "<rootDir>/jest.preset.js"}}'}, True),
        ("conf/jest-preset.js", {"jest.config.js": "module.exports = { preset: './conf' };\n"}, True),
        ("conf/base.json", {".mocharc.json": '{"extends": "./conf/base.json"}'}, True),
        ("build/deep.js", {"build/shared.js": 'import a from "./deep.js"\n', "vitest.config.js": IMPORTS}, True),
        ("build/shared.js", {"vitest.config.js": IMPORTS, "src/a.js": 'import s from "../build/shared.js"\n'}, False),
        ("build/shared.js", {"vitest.config.js": IMPORTS, "src/a.js": 'import s from "./shared.js"\n'}, True),
        ("build/shared.js", {"src/a.js": 'import s from "../build/shared.js"\n'}, False),
        ("index.js", {"package.json": '{"main": "./index.js", "plugins": "./index.js"}'}, False),
        ("src/main.js", {"vite.config.js": 'export default { build: { lib: { entry: "./src/main.js" } } };\n'}, False),
        ("a.js", {"b.js": 'import "./a.js"\n', "a.js": 'import "./b.js"\n'}, False),
    ],
)
def test_what_configuration_consists_of(path: str, files: Mapping[str, str], is_found: bool) -> None:
    read, grep = serve(files)
    assert find_config_parts([change(path)], [*files, path], read, grep) == (
        frozenset([path]) if is_found else frozenset()
    )
    assert not find_config_parts([change(path, None)], [*files], read, grep)

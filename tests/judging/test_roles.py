"""The role of a file for the tests, by its name and folder."""

from __future__ import annotations

import pytest

from ralphtool.judging.guard.test_files import is_test
from ralphtool.judging.roles import find_role

ROLES = {
    "test": """
        test_login.py tests/unit/test_a.py pkg/login_test.py src/a.test.ts src/a.spec.jsx src/__tests__/a.tsx
        e2e/login.ts pkg/login_test.go tests/it.rs src/tests.rs src/test/java/com/a/LoginTest.java
        src/test/kotlin/LoginTest.kt LoginIT.java TestLogin.java spec/models/user_spec.rb test/user_test.rb
        Shop.Tests/CartTests.cs tests/Unit/CartTest.php Tests/ShopTests/CartTests.swift test/shop/cart_test.exs
        src/cart_test.cc tests/test_cart.cpp cart_unittest.cc index.test-d.ts
    """,
    "helper": """
        tests/support.py tests/helpers/build.py pkg/testutil/build.go src/__mocks__/api.ts jest.setup.ts
        setupTests.js vitest.setup.mts spec/spec_helper.rb spec/rails_helper.rb src/test/java/com/a/Builders.java
        test/support/conn_case.exs tests/__init__.py src/test-utils/render.tsx tests/Unit/Builder.php
        src/test_utils.py export_test.go features/step_definitions/cart.rb e2e/step_defs/cart.py
    """,
    "snapshot": """
        src/__snapshots__/a.test.ts.snap tests/__snapshots__/test_a.ambr src/snapshots/shop__total.snap
        tests/golden/out.txt tests/out.golden tests/cart.approved.txt e2e/login.ts-snapshots/page.snap
        tests/snapshots/a.json
    """,
    "fixture": """
        tests/fixtures/cart.json pkg/testdata/a.go testdata/a.txt spec/cassettes/a.yml tests/data.json
        test/fixtures/a.rb tests/data/a.csv src/__fixtures__/a.ts src/test/resources/a.xml
        features/cart.feature qa/login.robot run.bats api/cart.hurl api/cart.tavern.yaml
    """,
    "config": """
        pytest.ini pyproject.toml setup.cfg tox.ini noxfile.py jest.config.js jest.config.ts vitest.config.mts
        vite.config.ts .mocharc.json ava.config.js karma.conf.js playwright.config.ts cypress.config.ts package.json
        web/package.json Makefile GNUmakefile checks.mk justfile Taskfile.yml .coveragerc Cargo.toml
        .cargo/config.toml build.rs go.mod .rspec phpunit.xml phpunit.xml.dist build.gradle build.gradle.kts pom.xml
        .config/nextest.toml mix.exs Shop.Tests.csproj vitest.workspace.ts .nycrc babel.config.js Rakefile
        CMakeLists.txt composer.json Gemfile .github/workflows/ci.yml run_tests.sh config/test.json
        config/environments/test.rb src/main/resources/application-test.yml appsettings.Test.json api/config/test.exs
        settings.testing.toml
    """,
    "shadow": """
        pytest/__init__.py pytest.py _pytest/config.py unittest/__init__.py unittest.py sitecustomize.py
        usercustomize.py a.pth lib/site-packages/a.pth conftest.py tests/conftest.py node_modules/jest/index.js
        jest/index.js .npmrc .env.test .env src/pytest/__init__.py src/sitecustomize.py jest.js go cargo.sh
        bin/pytest .venv/bin/pytest coverage.py shop.egg-info/entry_points.txt src/a.dist-info/METADATA
    """,
    "lint": """
        .eslintrc.json eslint.config.mjs .eslintrc tsconfig.json tsconfig.build.json mypy.ini ruff.toml .ruff.toml
        .flake8 .golangci.yml clippy.toml rustfmt.toml biome.json .rubocop.yml phpstan.neon pyrightconfig.json
        .editorconfig
    """,
    "docs": "README.md docs/guide.md CHANGELOG.md docs/conf.py LICENSE tests/README.md specs/001-login/tasks.md",
    "source": """
        login.py src/testing.py latest.py contest.py src/a.ts src/attest.js pkg/login.go src/lib.rs
        src/main/java/com/a/Login.java src/main/java/TestRunner.java src/TestData.ts app/Http/TestController.php
        Sources/App/TestBench.swift lib/cart.ex app/models/user.rb src/cart.cc Latest.java src/go/parser.ts
        cmd/make/main.go poetry.lock index.html src/features/cart/Cart.tsx config/default.json
        config/latest.json config/contest.rb appsettings.json data/test.json features/steps/scale.py
    """,
}


@pytest.mark.parametrize(("path", "role"), [(path, role) for role, paths in ROLES.items() for path in paths.split()])
def test_the_role_of_a_file_is_told_by_its_name_and_folder(path: str, role: str) -> None:
    assert find_role(path) == role


@pytest.mark.parametrize("path", ["src/main/java/TestRunner.java", "src/TestData.ts", "app/Models/TestResult.php"])
def test_production_files_may_begin_with_test(path: str) -> None:
    assert not is_test(path)


@pytest.mark.parametrize("path", ["", "/", "a//b", "." * 3000, "x/" * 3000, "tests/", "\0", "tests/é.py"])
def test_any_path_has_a_role(path: str) -> None:
    assert find_role(path)

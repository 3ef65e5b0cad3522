"""One browser and one page for all tests of the page; without a browser they are skipped, in CI that is a failure."""

import os

import pytest


@pytest.fixture(scope="package")
def chromium():
    from td3_lessons.explain.export import browser, find_chromium

    if find_chromium() is None:
        said = "Chromium is not installed: apt-get install chromium"
        pytest.fail(said) if os.environ.get("CI") else pytest.skip(said)
    with browser() as running:
        yield running


@pytest.fixture(scope="package")
def page_file(tmp_path_factory):
    from td3_lessons.explain.page import write_page
    from td3_lessons.explain.trace import lesson_trace

    return write_page(lesson_trace(), tmp_path_factory.mktemp("explain") / "page.html")


class Tab:
    """A tab with the page, and everything that it said and asked for since it was opened."""

    def __init__(self, running, file, width=1440, height=900, moment="#step=1", **context):
        self.context = running.new_context(viewport={"width": width, "height": height}, **context)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri() + moment)  # without a moment it trains two learners at once

    def show(self, moment):
        self.page.evaluate("moment => { location.hash = moment; }", moment)
        # The change of the address is told to the page in a later task.
        self.page.evaluate("() => new Promise(done => setTimeout(done, 0))")

    def evaluate(self, script, *arguments):
        return self.page.evaluate(script, *arguments)

    def image(self):
        return self.page.locator("#stage").inner_html()


@pytest.fixture(scope="package")
def tab(chromium, page_file):
    """A wide tab, shared: whoever uses it says which moment he wants."""
    return Tab(chromium, page_file)


@pytest.fixture(scope="package")
def open_tab(chromium):
    def opened(file, **context):
        return Tab(chromium, file, **context)

    return opened

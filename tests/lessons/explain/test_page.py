"""The page in a browser: it asks for nothing, complains of nothing, and every number on it is the recorded one."""

import html
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import td3
from td3.algorithm.networks import StackedMLP
from td3.algorithm.registry import STEPS
from td3.algorithm.step_02_actor import ActionRange, Actor
from td3.environments.rail import move
from td3_lessons.explain.claims import told
from td3_lessons.explain.lessons import FILM, LESSONS
from td3_lessons.explain.page import Source
from td3_lessons.explain.story import QUESTIONS
from td3_lessons.explain.trace import lesson_trace
from td3_lessons.ladder.climb import play_rail

FACTS = lesson_trace().facts
RANGE = ActionRange(torch.tensor([-1.0]), torch.tensor([1.0]))
UPDATES = FACTS["updates"]
START = FACTS["start"]
ODD, LAST = START - 1, UPDATES[-1]
AFTER = UPDATES[UPDATES.index(START) + 1]
ALL_BREAKS = [(number, name) for number, lesson in LESSONS.items() for name, *_ in lesson.breaks]
BITES = {name: f"&{bite}" if bite else "" for lesson in LESSONS.values() for name, _, bite in lesson.breaks}
POKES = {
    1: ["capacity=400"],
    2: ["low=-0.3", "high=0.5"],
    3: ["row=1"],
    4: ["row=2", "capacity=500"],
    5: ["row=6"],
    6: ["sigma=0", "sigma=1&clip=0.3", "clip=0"],
    7: ["aim=0.25", "aim=-1"],
    8: ["row=0"],
    9: ["gamma=0", "gamma=0.5", "dead=1"],
    10: ["row=7"],
    11: ["row=3"],
    12: ["rate=10"],
    13: ["delay=1", "delay=4"],
    14: ["tau=0.5", "tau=0", "delay=1"],
    15: ["tau=0.25", "tau=0", "delay=4"],
}


def moments():
    for number in range(1, 16):
        for poke in ["", *POKES[number], *(f"break={name}" for name, *_ in LESSONS[number].breaks)]:
            yield number, poke


def test_nothing_is_asked_of_anyone_and_the_page_is_small(tab, page_file):
    assert [url for url in tab.asked if not url.startswith("data:")] == [page_file.as_uri()]
    assert page_file.stat().st_size < 2_500_000
    # Links for the reader are fine; nothing is loaded from elsewhere.
    text = page_file.read_text(encoding="utf-8")
    assert not re.search(r'(src|srcset)="https?:|<link[^>]+href="https?:|url\(["\']?https?:', text)


def test_no_errors_over_every_step_poke_and_break(tab):
    tab.said.clear()
    for number, poke in moments():
        tab.show(f"update={START}&step={number}&t=0.5&{poke}")
        assert tab.said == [], (number, poke)
        assert "NaN" not in tab.image(), (number, poke)
        assert "undefined" not in tab.page.locator("main").inner_html(), (number, poke)


def test_no_errors_over_all_updates_steps_and_times(tab):
    strange = tab.evaluate(
        """updates => {
            const strange = [];
            for (const width of [640, 360]) for (const u of updates) for (let step = 0; step <= 15; step++)
                for (const t of [0, 0.31, 0.64, 1]) {
                    const scene = explain.stage(`update=${u}&step=${step}&t=${t}`, width, { heading: true });
                    if (/NaN|undefined|Infinity|null/.test(scene.inside)) strange.push([width, u, step, t]);
                }
            return strange;
        }""",
        UPDATES,
    )
    assert strange == []


def test_the_pages_own_update_agrees_with_pytorch(tab):
    arrays = lesson_trace().arrays
    for index, number in enumerate(UPDATES):
        made = tab.evaluate(
            """u => {
                const R = explain.run(u, explain.POKES), list = (v) => Array.from(v), both = (p) => p.map(list);
                return { rows: R.batch.rows, next_action: list(R.next_action), smoothed_action: list(R.smoothed),
                    target_q_values: both(R.target_q_values), next_q: list(R.next_q), target_q: list(R.y),
                    q_values: both(R.q), loss: R.loss, critics_gradient: both(R.criticGradients),
                    critics_after: both(R.criticsAfter), turn: R.turn, actor_loss: R.actorLoss,
                    actor_gradient: list(R.actorGradient), actor_after: list(R.actorAfter),
                    actor_target_after: list(R.actorTargetAfter), critics_target_after: both(R.targetsAfter) };
            }""",
            index,
        )
        assert made.pop("turn") == (number % 2 == 0)
        for name, value in made.items():
            if f"{name}.{index}" not in arrays:
                assert number % 2, name
                continue
            wanted = arrays[f"{name}.{index}"]
            given = np.array(value, float).reshape(wanted.shape)
            assert np.allclose(given, wanted, rtol=1e-5, atol=1e-5), (number, name, np.abs(given - wanted).max())


def shown(text):
    return float(text.replace("\N{MINUS SIGN}", "-").replace("\N{THIN SPACE}", ""))


def rows_of(tab):
    return [
        [cell.inner_text() for cell in row.locator("td").all()] for row in tab.page.locator("#values tbody tr").all()
    ]


@pytest.mark.parametrize("update", [1, START, LAST])
def test_shown_numbers_are_the_recorded_ones(tab, update):
    trace, index = lesson_trace(), UPDATES.index(update)
    arrays, places = trace.arrays, trace.facts["shown"][index]
    recorded = {
        name: arrays[f"{name}.{index}"] for name in ("rows", "next_action", "smoothed_action", "target_q_values")
    }
    recorded |= {name: arrays[f"{name}.{index}"] for name in ("next_q", "target_q", "q_values")}
    batch = arrays["memory"][recorded["rows"].astype(int)]
    expected = {
        4: lambda j: [recorded["rows"][j], batch[j, 0], batch[j, 2], batch[j, 5], batch[j, 6]],
        5: lambda j: [batch[j, 3], batch[j, 4], recorded["next_action"][j, 0]],
        7: lambda j: [recorded["smoothed_action"][j, 0], *recorded["target_q_values"][:, j]],
        8: lambda j: [*recorded["target_q_values"][:, j], recorded["next_q"][j]],
        9: lambda j: [batch[j, 5], batch[j, 6], recorded["next_q"][j], recorded["target_q"][j]],
        10: lambda j: [batch[j, 2], *recorded["q_values"][:, j], recorded["target_q"][j]],
    }
    for number, row in expected.items():
        tab.show(f"update={update}&step={number}&t=1")
        table = rows_of(tab)
        assert len(table) == 8
        for cells, place in zip(table, places, strict=True):
            assert np.allclose([shown(cell) for cell in cells[1:]], row(place), atol=6e-4), number
    tab.show(f"update={update}&step=11&t=1")
    sums = tab.page.locator("#values .sums b").all_inner_texts()
    assert shown(sums[2]) == pytest.approx(float(arrays[f"loss.{index}"]), abs=1e-4)


INVARIANTS = """hash => {
    const R = explain.compute(hash), k = explain.parse(hash).pokes, f = explain.facts, B = R.batch, bad = [];
    const check = (name, holds) => { if (!holds) bad.push(name); };
    const near = (a, b, e = 1e-9) => Math.abs(a - b) <= e;
    const kept = Math.min(f.filled[R.u], k.capacity);
    check("rows exist", B.rows.every((r) => r >= f.filled[R.u] - kept && r < f.filled[R.u]));
    check("noise within c", R.blur.every((v) => Math.abs(v) <= k.clip + 1e-12));
    check("within the range", R.smoothed.every((v) => v >= -1 && v <= 1));
    check("one question", R.second.every((v, j) => v === R.smoothed[j]));
    check("rows differ", k.sigma === 0 || k.clip === 0 || new Set(R.blur).size > 10);
    check("min of both", R.next_q.every((v, j) => v === Math.min(R.target_q_values[0][j], R.target_q_values[1][j])));
    const row = R.shown[k.row];
    const dead = (j) => (k.dead && j === row ? 1 : B.terminated[j]);
    check("Bellman", R.y.every((y, j) => near(y, B.reward[j] + k.gamma * (1 - dead(j)) * R.next_q[j])));
    check("stored action", R.asked.every((v, j) => v === B.action[j]));
    const mse = R.q.map((q) => q.reduce((s, v, j) => s + (v - R.y[j]) ** 2, 0) / R.y.length);
    check("loss", near(R.loss, mse[0] + mse[1], 1e-9 * (1 + R.loss)));
    const same = (p, q) => p.every((w, j) => w === q[j]);
    check("both critics moved", !same(R.critics[0], R.criticsAfter[0]) && !same(R.critics[1], R.criticsAfter[1]));
    check("targets untouched by step 12", [0, 1].every((i) => same(R.targets[i], R.targetsMoved[i])));
    check("turn", R.turn === (R.number % k.delay === 0));
    check("actor moves on its turn only", R.turn !== same(R.actor, R.actorAfter));
    check("Q1 climbs", !R.turn || R.slope.some((v) => v !== 0));
    const tau = R.turn ? k.tau : 0;
    const lerp = (p, q, now) => p.every((w, j) => near(now[j], w + tau * (q[j] - w), 1e-12));
    check("actor target", lerp(R.actorTarget, R.actorAfter, R.actorTargetAfter));
    check("critic targets", [0, 1].every((i) => lerp(R.targets[i], R.criticsAfter[i], R.targetsAfter[i])));
    return bad;
}"""


def test_what_must_hold_holds_under_every_poke_and_every_update(tab):
    for number in range(1, 16):
        for poke in ["", *POKES[number]]:
            for update in (1, ODD, START, LAST):
                assert tab.evaluate(INVARIANTS, f"update={update}&step={number}&{poke}") == [], (update, number, poke)


def sums_of(tab, moment):
    tab.show(moment)
    rows = tab.page.locator("#values .sums div").all()
    told = {row.locator("span").inner_text(): row.locator("b").inner_text() for row in rows}
    return {name: shown(value) for name, value in told.items() if "," not in value}


def test_the_memory_keeps_the_newest_up_to_its_capacity(tab):
    for capacity, kept in ((400, 400), (900, 900), (8_000, START + 999)):
        sums = sums_of(tab, f"update={START}&step=1&t=1&capacity={capacity}")
        assert (sums["added"], sums["kept"]) == (START + 999, kept)


def test_at_birth_targets_are_copies_and_twins_differ(tab):
    assert sums_of(tab, "update=284&step=2&t=1")["largest difference of a weight"] == 0
    sums = sums_of(tab, "update=284&step=3&t=1")
    assert sums["critic 1 and its target"] == sums["critic 2 and its target"] == 0
    assert sums["largest difference, critic 1 and critic 2"] > 0.1


def test_only_the_critics_move_in_step_12_and_only_the_actor_in_step_13(tab):
    moved = sums_of(tab, "update=284&step=12&t=1")
    assert moved["largest move, critic 1"] > 0 < moved["largest move, critic 2"]
    assert moved["largest move, all targets"] == 0
    moved = sums_of(tab, "update=284&step=13&t=1")
    assert moved["largest move, actor"] > 0 == moved["largest move, critics"]
    assert moved["mean Q1 after"] > moved["mean Q1 before"]


def test_q1_of_the_batch_rises_when_the_actor_steps(tab):
    script = "() => explain.facts.updates.map((_, u) => explain.run(u, explain.POKES)).map(R => [R.turn, ...R.rise])"
    rises = tab.evaluate(script)
    gains = [after - before for turn, before, after in rises if turn]
    assert len(gains) == 7
    assert all(gain > 0 for gain in gains), "the moments were chosen so"


VIOLATED = {
    "noclamp": "within the range",
    "onenoise": "rows differ",
    "noclip": "noise within c",
    "twonoise": "one question",
    "mean": "min of both",
    "max": "min of both",
    "first": "min of both",
    "nodeath": "Bellman",
    "timeout": "Bellman",
    "ownaction": "stored action",
    "broadcast": "loss",
    "leak": "targets untouched by step 12",
    "onecritic": "both critics moved",
    "stored": "Q1 climbs",
    "hardcopy": "critic targets",
    "oldest": "rows exist",
}


@pytest.mark.parametrize(("number", "name"), ALL_BREAKS)
def test_every_break_it_breaks_visibly_and_says_so(tab, number, name):
    update = ODD if name == "everyupdate" else START
    whole = f"update={update}&step={number}&t=1" + ("" if "update" in BITES[name] else BITES[name])
    wrong = f"{whole}&break={name}"
    tab.show(whole)
    before = tab.image()
    assert "Broken" not in tab.page.locator("#banner").inner_text()
    tab.show(wrong)
    assert tab.image() != before
    said = tab.page.locator("#banner")
    assert said.is_visible()
    label = next(label for other, label, _ in LESSONS[number].breaks if other == name)
    assert said.inner_text().startswith(f"Broken: {label}.")
    assert len(said.inner_text().split()) > 8
    if name in VIOLATED:
        assert VIOLATED[name] in tab.evaluate(INVARIANTS, wrong)
    tab.page.locator("[data-undo]").click()
    assert not said.is_visible()


def test_the_picture_depends_on_the_moment_alone(tab, open_tab, page_file):
    walk = random.Random(0)
    for _ in range(25):
        number, poke = walk.choice(list(moments()))
        tab.show(f"update={walk.choice(UPDATES)}&step={number}&t={walk.random():.3f}&{poke}")
    goal = f"update={UPDATES[5]}&step=13&t=0.8&row=2&delay=1&break=both"
    tab.show(goal)
    fresh = open_tab(page_file)
    fresh.show(goal)
    assert tab.image() == fresh.image()
    assert tab.page.locator("#values").inner_html() == fresh.page.locator("#values").inner_html()
    fresh.context.close()


def test_the_address_holds_everything(tab):
    for number, poke in moments():
        moment = f"update={ODD}&step={number}&t=0.25&{poke}&compare=both"
        made = tab.evaluate("h => explain.address(explain.parse(h))", moment)
        again = tab.evaluate("h => explain.address(explain.parse(h))", made)
        assert made == again
        assert tab.evaluate("h => explain.parse(h)", made) == tab.evaluate("h => explain.parse(h)", moment)


@pytest.mark.parametrize(
    "nonsense", ["step=99&t=-4", "step=x&update=abc&row=1e9", "break=nothing&capacity=-5", "%%%", "film=7"]
)
def test_a_foreign_address_still_shows_a_page(tab, nonsense):
    tab.said.clear()
    tab.show(nonsense)
    assert tab.said == []
    assert tab.page.locator("#drawing svg").is_visible()


@pytest.mark.parametrize("number", sorted(STEPS))
def test_the_code_pane_holds_the_very_source_with_its_place(tab, number):
    tab.show(f"step={number}")
    pane = tab.page.locator(f"#code-{number}")
    assert pane.is_visible()
    assert tab.page.locator(".code:visible").count() == 1
    source = Source(number)
    shown_code = pane.locator("code").text_content().rstrip("\n")
    assert shown_code == source.text
    assert pane.locator("figcaption").inner_text() == source.place
    # Every line below the signature is the one of the file with that number; docstring, types and checks are left out.
    numbers = pane.locator(".l").evaluate_all("all => all.map(line => +line.dataset.n)")
    file = (Path(td3.__file__).parent.parent / source.file).read_text(encoding="utf-8").splitlines()
    signature, *lines = shown_code.split("\n")
    assert lines == [file[number - 1] for number in numbers[1:]]
    assert signature.startswith(f"def {STEPS[number].function.__name__}(")
    assert file[numbers[0] - 1].startswith(signature.partition("(")[0])
    for left_out in ('"""', "@step", "Float[", "->", "require_finite"):
        assert left_out not in shown_code


OVERLAPS = """() => {
    const found = [];
    const drawings = "#stage svg, #race-stage svg, #task-stage svg, #live-stage svg, #bodies-stage svg, " +
        "#over-stage svg, #screen-stage svg";
    document.querySelectorAll(drawings).forEach((svg) => {
        const texts = [...svg.querySelectorAll("text")].filter((e) => e.textContent.trim());
        const all = texts.map((e) => [e.getBoundingClientRect(), e.textContent]);
        const frame = svg.getBoundingClientRect();
        all.forEach(([a, text], i) => {
            const out = a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1;
            if (out || a.bottom > frame.bottom + 1) found.push(`cut off: ${text}`);
            all.slice(i + 1).forEach(([b, other]) => {
                const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                if (wide > 1 && high > 3.5) found.push(`${text} | ${other}`);
            });
        });
    });
    const width = document.documentElement.scrollWidth;
    if (width > innerWidth + 1) found.push(`the page is wider than the screen: ${width}`);
    const boxes = "h1, h2, dd, .formula, .poke, .breaks button, .sums div, #banner span, #predict p, figcaption";
    document.querySelectorAll(boxes).forEach((e) => {
        const cut = e.offsetParent && getComputedStyle(e).display !== "inline" && e.scrollWidth > e.clientWidth + 1;
        if (cut) found.push(`clipped: ${e.textContent.slice(0, 40)}`);
    });
    return found;
}"""


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768), (390, 844), (320, 700)])
def test_no_text_overlaps_or_is_cut_off(open_tab, page_file, width, height):
    narrow = open_tab(page_file, width=width, height=height)
    faults = {}
    for number, poke in moments():
        narrow.show(f"update={START}&step={number}&t=1&{poke}")
        if found := narrow.evaluate(OVERLAPS):
            faults[number, poke] = found
    for number in range(4, 16):
        for update, t in ((ODD, 0.6), (LAST, 0.3), (1, 1)):
            narrow.show(f"update={update}&step={number}&t={t}")
            if found := narrow.evaluate(OVERLAPS):
                faults[number, update, t] = found
    for screen in range(1, 7):
        narrow.evaluate("n => { state.screen = n; guesses.set(n, 0); render(); }", screen)
        if found := narrow.evaluate(OVERLAPS):
            faults["screen", screen] = found
    narrow.context.close()
    assert faults == {}


def test_keys_go_through_steps_updates_film_and_back(tab):
    tab.show(f"update={START}&step=4&t=1")
    press = tab.page.keyboard.press
    where = lambda: tab.evaluate("() => explain.parse(location.hash)")  # noqa: E731  # asked again and again
    tab.page.locator("#stage").focus()
    press("ArrowRight")
    press(" ")
    assert where()["step"] == 5
    press("ArrowLeft")
    assert (where()["step"], where()["t"]) == (4, 1)
    press("PageUp")
    assert UPDATES[where()["u"]] == AFTER
    press("PageDown")
    assert UPDATES[where()["u"]] == START
    press("f")
    press(" ")
    assert where()["film"] is not None
    assert tab.page.locator("#caption").inner_text()
    tab.show(f"update={START}&step=9&gamma=0.5")
    press("0")
    assert where()["pokes"]["gamma"] == pytest.approx(0.99)


def test_keys_scroll_the_page_unless_the_drawing_or_the_steps_have_focus(open_tab, page_file):
    fresh = open_tab(page_file)
    fresh.show(f"update={START}&step=4&t=1")
    fresh.evaluate("() => { document.activeElement.blur(); scrollTo(0, 0); }")
    for key in ("ArrowRight", " ", "f", "0"):
        fresh.page.keyboard.press(key)
    assert "step=4&t=1" in fresh.evaluate("() => location.hash")
    assert fresh.evaluate("() => new Promise(done => setTimeout(() => done(scrollY), 400))") > 100, "space scrolls"
    fresh.context.close()


def test_focus_stays_where_the_keyboard_put_it(open_tab, page_file):
    fresh = open_tab(page_file, reduced_motion="reduce")
    fresh.show("step=4&t=1")
    focused = "() => document.activeElement.dataset.step || document.activeElement.id || document.activeElement.tagName"
    fresh.page.locator('[data-step="7"]').focus()
    fresh.page.keyboard.press("Enter")
    assert fresh.evaluate(focused) == "7"
    fresh.page.keyboard.press("ArrowRight")
    assert fresh.evaluate(focused) == "8"
    fresh.page.locator('[data-predict="0"]').focus()
    fresh.page.keyboard.press("Enter")
    assert fresh.evaluate("() => document.activeElement.dataset.predict") == "0"
    fresh.page.locator('[data-break="mean"]').focus()
    fresh.page.keyboard.press("Enter")
    assert fresh.evaluate("() => document.activeElement.dataset.break") == "mean"
    fresh.context.close()


def test_sliders_and_switches_do_what_they_say(tab):
    tab.show("update=284&step=9&t=1")
    tab.page.locator('[data-slide="gamma"]').fill("0")
    table = rows_of(tab)
    assert all(cells[1] == cells[4] for cells in table), "with gamma 0, y is the reward"
    tab.page.locator('[data-slide="gamma"]').focus()
    for _ in range(2):
        tab.page.keyboard.press("ArrowRight")
    assert tab.evaluate("() => explain.parse(location.hash).pokes.gamma") == pytest.approx(0.02)
    tab.page.locator('[data-break="nodeath"]').click()
    assert "Broken" in tab.page.locator("#banner").inner_text()
    tab.page.locator('[data-set="row"][data-value="2"]').click()
    assert tab.evaluate("() => explain.parse(location.hash).pokes.row") == 2
    tab.page.locator("#training").fill("0")
    assert "update=1&" in tab.evaluate("() => location.hash")
    tab.page.locator("#inside").fill("12.5")
    assert "step=12&t=0.5" in tab.evaluate("() => location.hash")


def test_hovering_a_symbol_lights_it_in_code_formula_drawing_and_values(tab):
    tab.show("update=284&step=9&t=1")
    tab.page.locator('#formula [data-sym="r"]').first.hover()
    for place in ("#formula", "#code-9", "#stage", "#values"):
        assert tab.page.locator(f'{place} [data-sym="r"].lit').count() > 0, place
    tab.page.mouse.move(700, 4)
    assert tab.page.locator(".lit").count() == 0


def test_every_drawing_has_a_title_and_a_description(tab):
    for number in range(1, 16):
        tab.show(f"step={number}")
        assert STEPS[number].title in tab.page.locator("#drawing title").text_content()
        assert tab.page.locator("#drawing desc").text_content().startswith(told(LESSONS[number].drawing))
    assert tab.page.locator("#drawing svg").get_attribute("role") == "img"
    assert "Map of TD3" in tab.page.locator("#map title").text_content()
    for control in tab.page.locator("main button, main input, nav button").all():
        own = control.get_attribute("aria-label") or control.inner_text()
        assert own or control.evaluate("e => e.closest('label')?.innerText")


def test_dark_readers_get_a_dark_page_with_the_same_drawing(open_tab, page_file, tab):
    dark = open_tab(page_file, color_scheme="dark")
    moment = "update=284&step=7&t=1"
    dark.show(moment)
    tab.show(moment)
    assert dark.image() == tab.image()
    color = "() => getComputedStyle(document.body).backgroundColor"
    assert dark.evaluate(color) != tab.evaluate(color)
    dark.context.close()


def luminance(color):
    parts = [int(value) / 255 for value in re.findall(r"\d+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(open_tab, page_file, scheme):
    seen = open_tab(page_file, color_scheme=scheme)
    pairs = [
        *(("ink", ground) for ground in ("paper", "wash")),
        *(("soft", ground) for ground in ("paper", "wash")),
        *((name, "paper") for name in ("actor-ink", "c1-ink", "c2-ink", "gradient-ink", "reward-ink", "bad", "accent")),
        *((name, "wash") for name in ("actor-ink", "c1-ink", "c2-ink", "gradient-ink", "ddpg", "pos", "neg")),
        ("paper", "accent"),
        ("paper", "actor-ink"),
    ]
    colors = seen.evaluate(
        """names => names.map((name) => { const e = document.createElement("i"); e.style.color = `var(--${name})`;
            document.body.append(e); const c = getComputedStyle(e).color; e.remove(); return c; })""",
        [name for pair in pairs for name in pair],
    )
    for (name, ground), text, below in zip(pairs, colors[::2], colors[1::2], strict=True):
        light, dark = sorted((luminance(text), luminance(below)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, ground, text, below)
    bar = seen.evaluate("""() => { const svg = document.querySelector("#stage svg"), make = (tag, cls) => {
        const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
        e.setAttribute("class", cls); svg.append(e);
        return getComputedStyle(e).fill; }; return [make("text", "on-bar"), make("rect", "reward")]; }""")
    light, dark = sorted(map(luminance, bar), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5, bar
    seen.context.close()


def test_only_a_short_sentence_is_announced_when_the_step_changes(tab):
    tab.show("step=3&t=1")
    live = tab.page.locator("[aria-live]")
    assert live.count() == 1
    assert live.text_content() == f"Step 3: {STEPS[3].title}"


def test_on_paper_there_are_all_fifteen_steps(open_tab, page_file):
    printed = open_tab(page_file)
    printed.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    printed.page.emulate_media(media="print")
    assert printed.page.locator("#paper article").count() == 15
    assert printed.page.locator("#paper article svg").count() == 15
    assert printed.page.locator("#paper").is_visible()
    assert not printed.page.locator("main").is_visible()
    assert len(printed.page.pdf()) > 50_000
    printed.context.close()


def test_on_a_phone_the_drawing_stays_in_view_above_its_controls(open_tab, page_file):
    phone = open_tab(page_file, width=390, height=844, has_touch=True)
    phone.show(f"update={START}&step=6&t=1")
    phone.page.locator('[data-slide="sigma"]').scroll_into_view_if_needed()
    phone.evaluate("() => document.querySelector('[data-slide=\"sigma\"]').scrollIntoView({ block: 'end' })")
    box = phone.page.locator("#drawing").bounding_box()
    slider = phone.page.locator('[data-slide="sigma"]').bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= slider["y"] + 1 < 844
    phone.evaluate("() => scrollBy(0, 380)")
    assert 40 <= phone.page.locator("#drawing").bounding_box()["y"] < 60, "it sticks below the row of steps"
    phone.context.close()


def test_before_the_first_update_no_update_is_named(tab):
    for number in (2, 3):
        tab.show(f"update={START}&step={number}&t=1")
        assert tab.page.locator("#training-label").inner_text() == "before the first update"


def test_the_cart_can_be_pushed_and_driven_off_the_rail(open_tab, page_file):
    driven = open_tab(page_file)
    for _ in range(30):
        driven.page.locator('[data-push="1"]').click()
        if "fell off" in driven.page.locator("#task-says").inner_text():
            break
    assert "fell off" in driven.page.locator("#task-says").inner_text()
    driven.page.locator('[data-push="0"]').click()
    assert "fell off" not in driven.page.locator("#task-says").inner_text()
    assert "0.9" in driven.page.locator("#task-says b").first.inner_text()
    driven.context.close()


def test_with_reduced_motion_the_trained_actor_drives_to_the_end_at_once(open_tab, page_file):
    calm = open_tab(page_file, reduced_motion="reduce")
    calm.page.locator('[data-drive="trained"]').click()
    assert "truncated" in calm.page.locator("#task-says").inner_text()
    position = shown(calm.page.locator("#task-says b").first.inner_text().split(",")[0])
    assert abs(position) < 0.2, "the trained actor holds the cart near the middle"
    calm.context.close()


@pytest.mark.parametrize(("number", "row"), [(6, 6), (8, 6), (9, 2), (9, 3), (13, 6)])
def test_a_prediction_is_asked_answered_and_kept(open_tab, page_file, number, row):
    fresh = open_tab(page_file, reduced_motion="reduce")
    fresh.show(f"update={START}&step={number}&t=0&row={row}")
    asked = fresh.page.locator("#predict")
    assert asked.inner_text().startswith("Predict first")
    options = asked.locator("button").count()
    said = []
    for option in range(options):
        fresh.page.locator(f'[data-predict="{option}"]').click()
        said.append("Right." in asked.inner_text())
    assert said.count(True) == 1
    before = asked.inner_text()
    fresh.page.locator('[data-step="4"]').click()
    fresh.show(f"update={START}&step={number}&t=1&row={row}")
    assert asked.inner_text() == before, "the answer stays on the page"
    fresh.context.close()


def test_a_click_on_a_network_shows_what_it_says_before_and_after(tab):
    tab.show(f"update={START}&step=12&t=1")
    tab.page.locator('#map [data-net="critic1"]').click()
    assert tab.page.locator("#network").is_visible()
    assert "critic 1" in tab.page.locator("#network-title").inner_text()
    assert tab.page.locator("#network svg text", has_text="from").count() == 2
    tab.page.locator("#network button").click()
    assert not tab.page.locator("#network").is_visible()
    tab.page.locator('button[data-net="actorTarget"]').focus()
    tab.page.keyboard.press("Enter")
    assert "actor target" in tab.page.locator("#network-title").inner_text()
    tab.page.keyboard.press("Escape")


def test_what_a_policy_earns_is_what_the_environment_pays(tab):
    policy = """([u, state, force]) => { const p = explain.array(`actor_before.${u}`);
        return [...earnedQ(p, Float64Array.from(state), [force])]; }"""
    trace, index = lesson_trace(), UPDATES.index(LAST)
    actor = Actor(StackedMLP([2, 16, 16, 1], torch.tensor(trace.arrays[f"actor_before.{index}"])[None]), RANGE)
    for state, force in (((0.5, -0.2), 0.3), ((1.9, 1.0), 1.0), ((-1.0, 0.0), -0.5)):
        made = tab.evaluate(policy, [index, list(state), force])[0]
        reward, x, v, left = move(np.array([state[0]]), np.array([state[1]]), np.array([force]))
        rest = play_rail(
            lambda states: (
                actor(torch.tensor(states, dtype=torch.float32)[None])[0, :, 0].detach().numpy().astype(float)
            ),
            np.stack((x, v), -1),
            499,
        )
        assert made == pytest.approx(float(reward[0] + 0.99 * (not left[0]) * rest[0]), abs=0.02)


def test_the_impossible_is_shaded_and_all_rows_are_in_the_cloud(tab):
    tab.show(f"update={UPDATES[0]}&step=10&t=1&compare=none")
    assert tab.page.locator("#drawing .cannot").count() == 1, "Q above 0"
    tab.show(f"update={FACTS['puzzle']}&step=12&t=1")
    assert "come closer to y by both critics" in tab.page.locator("#drawing").text_content()
    marks = tab.page.locator("#drawing circle, #drawing rect.c2").count()
    assert marks >= 2 * 64


def test_areas_of_step_11_are_the_squared_errors(tab):
    tab.show(f"update={START}&step=11&t=1&row=4")
    sides = tab.page.locator('#drawing rect[data-sym="q1"]').evaluate_all(
        "all => all.map(e => +e.getAttribute('width'))"
    )
    arrays, index = lesson_trace().arrays, UPDATES.index(START)
    errors = np.abs(arrays[f"q_values.{index}"][0] - arrays[f"target_q.{index}"])[FACTS["shown"][index]]
    truth = np.array(sides[:8]) / max(sides[:8])
    seen = errors / errors.max() > 0.03  # what is smaller than a pixel is drawn as one
    assert np.allclose(truth[seen], (errors / errors.max())[seen], atol=0.02)
    lens = np.delete(errors, errors.argmax())
    assert np.allclose(np.array(sides[8:]) / max(sides[8:]), lens / lens.max(), atol=0.03)


def test_six_screens_are_predicted_run_and_explained(open_tab, page_file):
    calm = open_tab(page_file, reduced_motion="reduce")
    for number in range(1, 7):
        calm.page.locator(f'[data-screen="{number}"]').click()
        assert calm.page.locator("#screen-because").inner_text() == "", "nothing answers before the reader has"
        assert calm.page.locator("#screen-stage svg").count() == 0
        said = []
        for option in range(3):
            calm.page.locator(f'[data-guess="{option}"]').click()
            said.append(calm.page.locator("#screen-because").inner_text().startswith("Right."))
        assert said.count(True) == 1
        assert calm.page.locator("#screen-stage svg").is_visible()
    calm.page.locator('[data-screen="4"]').click()
    calm.page.locator("#toy-n").fill("10")
    assert "10 noisy critics" in calm.page.locator("#screen-stage title").text_content()
    assert calm.said == []
    calm.context.close()


def test_two_learners_train_in_the_page_and_can_be_paused(open_tab, page_file):
    tab = open_tab(page_file, reduced_motion="reduce")
    assert "recorded seeds" in tab.page.locator("#live-says").inner_text()
    tab.page.locator("#live-toggle").click()
    tab.page.wait_for_function(
        "() => ['td3', 'ddpg'].every((name) => live.runs[name]?.moments.length > 2)", timeout=60_000
    )
    tab.page.locator("#live-toggle").click()
    assert tab.evaluate("() => live.running") is False
    assert tab.page.locator("#live-toggle").inner_text() == "Go on"
    moments = tab.evaluate("() => live.runs.td3.moments[1]")
    wanted = tab.evaluate(
        """() => { const T = makeTrainer(raceSetup(), [], LIVE_SEED);
            for (let u = 0; u < 100; u++) T.step();
            return T.measure(); }"""
    )
    assert moments == wanted, "what is seen is TD3, not an animation of it"
    assert tab.said == []
    tab.context.close()


def test_the_page_opens_in_motion_unless_the_reader_wants_stillness(open_tab, page_file):
    moving = open_tab(page_file, moment="")
    moving.page.wait_for_function("() => live.runs.ddpg?.update > 20 && live.runs.td3?.update > 20", timeout=60_000)
    first = moving.page.locator("#live-stage .cart, #live-stage svg").first.inner_html()
    moving.page.wait_for_function(
        "update => live.runs.td3.update > update + 20", arg=moving.evaluate("() => live.runs.td3.update")
    )
    assert moving.page.locator("#live-stage svg").inner_html() != first
    assert moving.page.locator("#live-toggle").inner_text() == "Pause"
    assert moving.said == []
    assert [url for url in moving.asked if not url.startswith(("file:", "data:", "blob:"))] == []
    box = moving.page.locator("#live-stage").bounding_box()
    assert box["y"] + box["height"] < 900, "the first drawing is above the fold"
    moving.context.close()
    still = open_tab(page_file, moment="", reduced_motion="reduce")
    assert still.evaluate("() => live.running") is False
    still.context.close()
    phone = open_tab(page_file, moment="", width=390, height=844, reduced_motion="reduce")
    assert phone.page.locator("#live-stage").bounding_box()["y"] < 200
    phone.context.close()


def test_a_prediction_is_not_answered_by_the_numbers_beside_it(open_tab, page_file):
    fresh = open_tab(page_file, reduced_motion="reduce")
    for number, column in ((6, 4), (8, 3), (9, 4), (13, 3)):
        fresh.show(f"update={START}&step={number}&t=0&row=5")
        assert {row[column] for row in rows_of(fresh)} == {"?"}
        assert fresh.page.locator("#values .sums").count() == 0
        fresh.page.locator('[data-predict="0"]').click()
        assert "?" not in {row[column] for row in rows_of(fresh)}
    assert "of 4 right so far" in fresh.page.locator("#predict").inner_text()
    fresh.context.close()


def test_step_0_shows_both_noises(tab):
    tab.show(f"update={START}&step=0&t=1")
    assert "exploration" in tab.image()
    assert "smoothing" in tab.image()
    assert tab.page.locator('#prose [data-claim="noise.both"]').count() == 1


def test_every_switch_moves_to_the_state_in_which_it_bites(open_tab, page_file):
    fresh = open_tab(page_file, reduced_motion="reduce")
    for number, name in (("1", "oldest"), ("2", "symmetric"), ("6", "noclip"), ("9", "timeout"), ("14", "everyupdate")):
        fresh.show(f"step={number}&t=1")
        fresh.page.locator(f'[data-break="{name}"]').click()
        said = fresh.page.locator("#banner").inner_text()
        assert not re.search(r"not full yet|holds no|\b0 of", said), (name, said)
        fresh.page.locator(f'[data-break="{name}"]').click()
        assert (
            fresh.evaluate(
                """() => Object.keys(POKES).filter((k) => k !== "row" &&
                    JSON.stringify(state.pokes[k]) !== JSON.stringify(POKES[k]))"""
            )
            == []
        )
    fresh.context.close()


SOLVED = """() => explain.exercises.map(({ step, solution, stub }) =>
    [step, checked(step, solution), checked(step, stub)])"""


def test_every_exercise_of_the_page_is_passed_by_its_solution_and_not_by_its_stub(tab):
    made = tab.evaluate(SOLVED)
    assert [step for step, *_ in made] == list(range(1, 16))
    assert [step for step, right, _ in made if not right["right"]] == []
    assert [step for step, _, stub in made if stub["right"]] == []


PLANTED = {
    (1, "keep the oldest"): "return [...buffer, row].slice(0, capacity);",
    (2, "scale by the highest action"): "return outputs.map((x) => high * Math.tanh(x));",
    (3, "the targets are the critics"): "return [critic1, critic2];",
    (3, "critic 2 is a copy of critic 1"): "return [critic1.slice(), critic1.slice()];",
    (4, "the newest rows"): "return Array.from({ length: count }, (_, j) => filled - count + j);",
    (5, "the online actor"): "return actor(nextState);",
    (6, "no clamp"): "return nextAction.map((a, j) => a + Math.max(-c, Math.min(c, sigma * normal[j])));",
    (6, "no bound"): "return nextAction.map((a, j) => Math.max(low, Math.min(high, a + sigma * normal[j])));",
    (
        6,
        "one noise",
    ): "return nextAction.map((a) => Math.max(low, Math.min(high, a + Math.max(-c, Math.min(c, sigma * normal[0])))));",
    (7, "another noise"): "return [q1Target(nextState, smoothed), q2Target(nextState, smoothed.map((a) => -a))];",
    (8, "the mean"): "return q1.map((q, j) => (q + q2[j]) / 2);",
    (9, "no (1 - terminated)"): "return reward.map((r, j) => r + gamma * nextQ[j]);",
    (
        9,
        "a time-out is death",
    ): """const late = arguments[4];
        return reward.map((r, j) => r + gamma * (1 - Math.max(terminated[j], late[j])) * nextQ[j]);""",
    (10, "the actor's action"): "return [q1(state, policyAction), q2(state, policyAction)];",
    (
        11,
        "(B, 1) against (B,)",
    ): "let s = 0; for (const a of q1) for (const b of y) s += (a - b) ** 2; return (2 * s) / y.length ** 2;",
    (
        11,
        "halved",
    ): "const m = (q) => q.reduce((s, v, j) => s + (v - y[j]) ** 2, 0) / y.length; return (m(q1) + m(q2)) / 2;",
    (
        12,
        "the targets as well",
    ): "return [...critics.map((p, i) => step(p, gradients[i])), ...targets.map((p, i) => step(p, gradients[i]))];",
    (13, "both critics"): "return -q1.reduce((s, q, j) => s + (q + q2[j]) / 2, 0) / q1.length;",
    (13, "no minus"): "return q1.reduce((s, q) => s + q, 0) / q1.length;",
    (14, "copied"): "return online;",
    (15, "every update"): "return targets.map((p, i) => p.map((w, j) => w + tau * (critics[i][j] - w)));",
}


@pytest.mark.parametrize(("step", "mistake"), PLANTED)
def test_a_planted_mistake_is_caught_with_the_number_that_it_should_have_been(tab, step, mistake):
    made = tab.evaluate(
        "([step, body]) => checked(step, `function ${explain.exercises[step - 1].signature} {${body}}`)",
        [step, PLANTED[step, mistake]],
    )
    assert not made["right"]
    assert re.search(r"yours is \S+, it should have been \S+; \d+ of \d+ numbers differ", made["said"]), made["said"]
    if "terminated" in mistake:
        assert "which terminated" in made["said"]
    if "time-out" in mistake:
        assert "a time-out" in made["said"]


def test_an_exercise_is_written_checked_and_counted(open_tab, page_file):
    tab = open_tab(page_file)
    code = tab.page.locator("#lesson-code")
    tab.page.locator('[data-exercise="8"]').click()
    tab.page.locator("#lesson-check").click()
    assert "returns nothing yet" in tab.page.locator("#lesson-says").inner_text()
    code.fill("function minQ(q1, q2) { return oops; }")
    tab.page.locator("#lesson-check").click()
    assert "oops is not defined" in tab.page.locator("#lesson-says").inner_text()
    tab.page.locator("#lesson-solution").click()
    tab.page.locator("#lesson-check").click()
    assert tab.page.locator("#lesson-says").inner_text().startswith("Right")
    assert tab.page.locator("#lesson-count").inner_text() == "1 of 15 right"
    tab.page.locator('[data-exercise="9"]').click()
    tab.page.locator('[data-exercise="8"]').click()
    assert "Math.min" in code.input_value(), "what was written stays"
    assert tab.said == []
    tab.context.close()


def test_harmless_changes_are_told_without_alarm(tab):
    tab.show(f"update={START}&step=9&t=1&gamma=0.5")
    assert tab.page.locator("#banner").is_visible()
    assert "broken" not in (tab.page.locator("#banner").get_attribute("class") or "")
    tab.show(f"update={START}&step=9&t=1&break=nodeath")
    assert "broken" in tab.page.locator("#banner").get_attribute("class")


def test_reduced_motion_gets_still_frames(open_tab, page_file):
    still = open_tab(page_file, reduced_motion="reduce")
    still.show("step=4&t=1")
    still.page.locator("#stage").focus()
    still.page.keyboard.press("ArrowRight")
    assert still.evaluate("() => explain.parse(location.hash).t") == 1
    still.page.keyboard.press("f")
    assert "film=0.0000" in still.evaluate("() => location.hash")
    still.context.close()


def test_the_first_drawing_comes_in_one_task_without_waiting(page_file):
    # No wall clock: the script draws as it is read, before any timer, frame or request.
    text = page_file.read_text(encoding="utf-8")
    script = text[text.rindex("<script>") :]
    assert "DOMContentLoaded" not in script
    assert "await " not in script
    assert re.search(r"render\(false\);\s*</script>\s*</body>\s*</html>\s*$", script)


def test_the_questions_are_answered_on_the_page(tab):
    tab.show("step=1")
    assert tab.page.locator("#questions details").count() == len(QUESTIONS)
    second = tab.page.locator("#questions details").nth(1)
    second.locator("summary").click()
    assert told(QUESTIONS[1].answer) in html.unescape(second.inner_text())
    second.locator("a").click()
    # The change of the address is told to the page in a later task.
    tab.page.wait_for_function("() => document.querySelector('#title').innerText.startsWith('8')")
    tab.said.clear()
    for question in QUESTIONS:
        tab.show(question.moment)
        step = re.search(r"step=(\d+)", question.moment)[1]
        assert tab.page.locator("#title b").inner_text() == step
    assert tab.said == []


def test_the_film_can_be_scrubbed(tab):
    captions, updates = [], []
    for part in range(0, 21):
        tab.show(f"film={part / 20}")
        captions.append(tab.page.locator("#caption").inner_text())
        updates.append(int(re.search(r"update (\d+)", tab.page.locator("#drawing").text_content())[1]))
    assert len(set(captions)) == len(FILM)
    assert updates == sorted(updates)
    assert (updates[0], updates[-1]) == (FACTS["film"], FACTS["film"] + 200)
    assert "its target" in tab.page.locator("#drawing").text_content(), "at the end the parts are named"
    tab.show("film=0.5")
    tab.page.locator("#inside").fill("8.5")
    assert "film=0.5" in tab.evaluate("() => location.hash")
    tab.page.locator("#film").click()
    assert "film" not in tab.evaluate("() => location.hash")


@pytest.mark.long
def test_nothing_strange_under_any_poke_break_update_row_or_time(tab):
    pokes = [(number, poke) for number, poke in moments()]
    strange = tab.evaluate(
        """([updates, pokes]) => {
            const strange = [];
            for (const u of updates) for (const [step, poke] of pokes) for (let row = 0; row < 8; row++)
                for (const t of [0, 0.33, 0.61, 1]) {
                    const hash = `update=${u}&step=${step}&t=${t}&row=${row}&compare=both&${poke}`;
                    for (const width of [640, 360])
                        if (/NaN|undefined|Infinity|null/.test(explain.stage(hash, width).inside)) strange.push(hash);
                }
            return strange;
        }""",
        [UPDATES, pokes],
    )
    assert strange == []


@pytest.mark.long
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768), (390, 844)])
def test_no_text_overlaps_at_any_update(open_tab, page_file, width, height):
    narrow = open_tab(page_file, width=width, height=height)
    faults = {}
    for update in UPDATES:
        for number in range(1, 16):
            for row in (0, 2, 5):
                for t in (0.4, 1):
                    narrow.show(f"update={update}&step={number}&t={t}&row={row}&compare=both")
                    if found := narrow.evaluate(OVERLAPS):
                        faults[update, number, row, t] = found
    narrow.context.close()
    assert faults == {}

"""The texts of the lesson: what the page, the docs, the film and the notebook say beside the code.

What a step does, why, and what happens without it stand in its own docstring; here is what a docstring has no room for.
"""

import inspect
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from td3.algorithm.registry import STEPS
from td3_lessons.explain.breaks import MEASURES, RACES
from td3_lessons.explain.claims import marked, told
from td3_lessons.explain.story import QUESTIONS


class Lesson(NamedTuple):
    """A step beside its code."""

    misreading: str
    formula: str
    drawing: str
    measured: str
    """What the project's own runs say of this step, claim by claim."""
    pokes: Sequence[tuple[Any, ...]]
    breaks: Sequence[tuple[str, str, str]]
    """Name, label, and the change of the state in which it bites."""


class Acting(NamedTuple):
    """What happens before any update: step 0."""

    title: str
    what: str
    why: str
    misreading: str


class Words(NamedTuple):
    """The three parts of a step's docstring, as sentences."""

    what: str
    why: str
    without: str


class Shot(NamedTuple):
    """A piece of the film: seconds, from which share of its updates to which, caption."""

    seconds: float
    start: float
    end: float
    caption: str


ROW = ("row",)
# fmt: off
LESSONS: dict[int, Lesson] = {
    1: Lesson(
        "The buffer does not grow for ever: it is a ring, and when it is full the newest transition overwrites the oldest.",
        "buffer = | newest N of | (s, a, r, s', d)",
        "A ring of slots fills with transitions; the same transitions appear as dots on the plane of states.",
        "{{row.numbers}}",
        [("slider", "capacity", 200, 8000, 100, "capacity")],
        [("oldest", "when full, keep the oldest", "capacity=500")],
    ),
    2: Lesson(
        "The target is not a second policy to choose from. It starts equal, is never trained, and only follows.",
        "π(s) = middle + | half · tanh(net(s)) ; π' = copy(π)",
        "The actor's policy as a map over the states, and its weights being copied into the target.",
        "{{race.notargets}} Q-values that grow without bound need three things at once, the deadly triad: a network as table "
        "(step 3), bootstrapping (step 9), and data of other policies (step 4). TD3 has all three and damps the loop.",
        [("slider", "low", -1, -0.1, 0.05, "lowest action"), ("slider", "high", 0.1, 1, 0.05, "highest action")],
        [("symmetric", "scale by the highest action only", "low=-0.3")],
    ),
    3: Lesson(
        "The second critic is no copy of the first: they share the task, the data and y, but not their initial weights.",
        "Q1 ≠ Q2 ; Q1' = copy(Q1) ; Q2' = copy(Q2)",
        "Two critics rate every action in one state, and disagree; their targets agree with them exactly.",
        "",
        [ROW],
        [("twins", "make critic 2 a copy of critic 1", "")],
    ),
    4: Lesson(
        "A batch is not the last few transitions. It is drawn anew from the whole buffer, and a row may be drawn again.",
        "(s, a, r, s', d) ∼ | uniform(buffer)",
        "Dots on the plane of states move into the rows of a table: the batch.",
        "",
        [ROW],
        [("newest", "take the newest rows only", "")],
    ),
    5: Lesson(
        "a' is not the action that was taken next, and not the online actor's: it is what the target actor would do in s'.",
        "a' = π'(s')",
        "Each row's next state enters the target actor; a mark lands on the action axis.",
        "",
        [ROW],
        [("online", "use the online actor instead", "")],
    ),
    6: Lesson(
        "This noise is not exploration. No environment receives it; it only spreads the point at which the targets are read.",
        "ã = clip( | a' + clip(σ · N(0, 1), −c, c), | low, high)",
        "Noise around each next action: first a move of at most c, then back inside the action range.",
        "{{bodies.hopper.nosmooth}} {{bodies.nosmooth.undecided}} {{race.nosmooth}}",
        [("slider", "sigma", 0, 1, 0.05, "noise σ"), ("slider", "clip", 0, 1, 0.05, "bound c"), ROW],
        [("noclamp", "no clamp to the range", "sigma=0.6"), ("onenoise", "one noise for all rows", ""), ("noclip", "no bound on the noise", "sigma=0.6")],
    ),
    7: Lesson(
        "Both critics must evaluate the same ã. They may differ in their answer, not in the question.",
        "Q1'(s', ã) , | Q2'(s', ã)",
        "Two target curves over all actions, each read at the smoothed action ã.",
        "",
        [("slider", "aim", -1, 1, 0.02, "move ã"), ROW],
        [("twonoise", "another noise for each critic", "")],
    ),
    8: Lesson(
        "The smaller Q-value is taken row by row, not from one critic for good: which is lower changes from row to row.",
        "min(Q1'(s', ã), | Q2'(s', ã))",
        "The lower envelope of two curves thickens; for eight rows, the lower of two Q-values is ringed.",
        "{{bodies.ant.first}} {{bodies.cheetah.first}} {{race.first}}",
        [ROW],
        [("mean", "keep the mean", ""), ("max", "keep the larger", ""), ("first", "use critic 1 only", "")],
    ),
    9: Lesson(
        "A time-out is not a termination. The episode stops, the task goes on, so its row bootstraps like any other.",
        "y = r + | γ (1 − d) | min(Q1', Q2')",
        "Reward and discounted future as stacked blocks; in a row that terminated the second block falls away.",
        "{{race.timeout}} {{race.nodeath}}",
        [("slider", "gamma", 0, 1, 0.01, "discount γ"), ("toggle", "dead", "this row ended"), ROW],
        [("nodeath", "drop (1 − d)", "row=2"), ("timeout", "treat a time-out as a termination", "row=3")],
    ),
    10: Lesson(
        "The critics evaluate the stored action, even if today's actor would act otherwise: for it alone r is known.",
        "Q1(s, a) , | Q2(s, a)",
        "The online critics' curves, read at the stored action, with the distance to the Bellman target y.",
        "",
        [ROW],
        [("ownaction", "evaluate the actor's action instead", "")],
    ),
    11: Lesson(
        "One y serves both critics, row by row, in matching shapes: (B,) with (B,).",
        "loss = | mean((Q1 − y)²) + | mean((Q2 − y)²)",
        "Every row's squared error as a square of that area, all on one scale; stacked, they are the loss.",
        "{{census.largest}} {{race.broadcast}}",
        [ROW],
        [("broadcast", "shape (B, 1) against (B,)", "")],
    ),
    12: Lesson(
        "Minimizing the loss does not pull y toward the critics: no gradient passes into a target network.",
        "θ ← θ − | Adam(∂loss / ∂θ)",
        "The gradient runs from the loss through both critics and their curves move. Beside them every row of the batch: does it approach y, or move away?",
        "{{census.rows}}",
        [("slider", "rate", 1, 10, 1, "learning rate ×"), ROW],
        [("leak", "let the targets learn too", ""), ("onecritic", "train critic 1 only", "")],
    ),
    13: Lesson(
        "The actor is improved at its own action, not at the stored one, and on critic 1 alone. Minus: optimizers minimize.",
        "loss = | − mean(Q1(s, π(s))) ; φ ← φ − | Adam(∂loss / ∂φ)",
        "A tangent on Q1's curve at the actor's point; the gradient passes through critic 1 into the actor, whose action moves. On other updates: not in this update.",
        "{{bodies.ant.nodelay}} {{bodies.nodelay.undecided}} {{race.nodelay}}",
        [("choice", "delay", [1, 2, 4], "policy delay"), ROW],
        [("both", "ascend the mean of both", ""), ("least", "ascend the smaller of both", ""), ("stored", "use the stored action", "")],
    ),
    14: Lesson(
        "{{lag.share}}",
        "φ' ← | (1 − τ) φ' + τ φ",
        "{{lag.drawn}}",
        "{{lag.half}}",
        [("slider", "tau", 0, 0.5, 0.005, "share τ"), ("choice", "delay", [1, 2, 4], "policy delay")],
        [("everyupdate", "move at every update", "update=odd"), ("hardcopy", "copy the whole network", "")],
    ),
    15: Lesson(
        "The critic targets do not follow at every update: they move when the actor does, as in step 14.",
        "θ1' ← | (1 − τ) θ1' + τ θ1 ; θ2' ← | (1 − τ) θ2' + τ θ2",
        "One weight of critic 1 and of its target in time; below, y of one row, from the target networks and from the online networks of the same run.",
        "{{race.notargets}} {{race.hardcopy}}",
        [("slider", "tau", 0, 0.5, 0.005, "share τ"), ("choice", "delay", [1, 2, 4], "policy delay"), ROW],
        [("everyupdate", "move at every update", "update=odd"), ("hardcopy", "copy the whole network", "")],
    ),
}

ACTING = Acting(
    "Act in the environment",
    "a = clip(π(s) + noise, low, high). The environment answers with r and s', and the row (s, a, r, s', terminated) goes into the buffer.",
    "Without noise the actor repeats itself, and the critics learn nothing of the actions beside its own. TD3 is off-policy: any stored row will do, no matter which policy acted.",
    "Step 6 has a noise as well. That one is added to the target actor's action, inside the update. {{noise.both}}",
)
"""Step 0: outside the update, and outside the fifteen."""

FILM = (
    Shot(3.0, 0.0, 0.34, "A critic guesses what actions earn."),
    Shot(3.0, 0.34, 0.67, "Updates pull its guess toward y."),
    Shot(3.0, 0.67, 1.0, "The actor climbs; targets follow late."),
    Shot(3.0, 1.0, 1.0, "Again, thousands of times: that is TD3."),
)
# fmt: on

PAPER = "https://arxiv.org/abs/1802.09477"
AUTHORS_CODE = "https://github.com/sfujim/TD3"
CREDITS = f"""The division into fifteen steps is that of the course *Deep Reinforcement Learning 2.0* and of the lessons
that follow it. The algorithm is by Scott Fujimoto, Herke van Hoof and David Meger: [Addressing Function Approximation
Error in Actor-Critic Methods]({PAPER}) (2018), with [the author's code]({AUTHORS_CODE})."""


def words(number: int) -> Words:
    """What, why, and what without it, from the docstring of the step."""
    text = " ".join((inspect.getdoc(STEPS[number].function) or "").split())
    parts = re.fullmatch(r".*? What: (.*?) Why: (.*?) If you leave it out: (.*)", text)
    assert parts is not None, f"step {number} does not say what, why, and what without it"
    return Words(*(_sentence(part) for part in parts.groups()))


def _sentence(text: str) -> str:
    """With a capital letter, unless it begins with a formula; signs as one would print them."""
    plain = text.replace("+-", "±").replace("<-", "←").replace(" * ", " · ")
    return plain if re.match(r"\S'|\S* ?[=←(]|min|y is", plain) else plain[:1].upper() + plain[1:]


SYMBOLS = {
    "memory": "memory",
    "state": "s",
    "action": "a",
    "reward": "r",
    "next_state": "s2",
    "terminated": "d",
    "next_action": "a2",
    "smoothed_action": "smooth",
    "noise": "sigma",
    "noise_clip": "clip",
    "next_q": "min",
    "target_q": "y",
    "gamma": "gamma",
    "tau": "tau",
    "loss": "loss",
    "actor": "actor",
    "critics": "critics",
    "actor_target": "actor_target",
    "critics_target": "critics_target",
}
"""Names in the code, and the symbol that lights up with them in formula, drawing and values."""

_MARKED = {
    "s": "s",
    "s'": "s2",
    "a": "a",
    "a'": "a2",
    "ã": "smooth",
    "r": "r",
    "d": "d",
    "y": "y",
    "γ": "gamma",
    "τ": "tau",
    "σ": "sigma",
    "c": "clip",
    "loss": "loss",
    "buffer": "memory",
    "π": "actor",
    "π'": "actor_target",
    "φ": "actor",
    "φ'": "actor_target",
    "θ": "critics",
    "θ1": "q1",
    "θ2": "q2",
    "θ1'": "q1t",
    "θ2'": "q2t",
    "Q1": "q1",
    "Q2": "q2",
    "Q1'": "q1t",
    "Q2'": "q2t",
    "min": "min",
}


PRIME = '<mo lspace="0" rspace="0">′</mo>'


def mathml(formula: str) -> str:
    """A formula written on one line as MathML; what is also in the code or the drawing carries its symbol.

    `;` begins a new formula, `|` marks where a line may break: each part is an element of its own, so that the browser
    can wrap between them.
    """
    return " ".join(
        '<span class="line">' + " ".join(_math(part) for part in line.split("|")) + "</span>"
        for line in formula.split(";")
    )


def _math(formula: str) -> str:
    out: list[str] = []
    before = ""
    for token in re.findall(r"[A-Za-zãγτσπφθ]+\d?'?|\d+|\S", formula):
        if before[:1].isalpha() and token[0].isalpha():  # two words: MathML would set them as one
            out.append('<mspace width="0.3em"/>')
        before = token
        attributes = f' data-sym="{_MARKED[token]}"' if token in _MARKED else ""
        name = token.rstrip("'")
        prime = PRIME if token.endswith("'") else ""
        if token == "²":
            out[-1] = f"<msup><mrow>{out[-1]}</mrow><mn>2</mn></msup>"
        elif re.fullmatch(r"[Qθ]\d'?", token):
            out.append(f"<mrow{attributes}><msub><mi>{name[0]}</mi><mn>{name[1]}</mn></msub>{prime}</mrow>")
        elif prime:
            out.append(f"<mrow{attributes}><mi>{name}</mi>{prime}</mrow>")
        elif token[0].isalpha():
            style = ' mathvariant="normal"' if len(token) > 1 else ""
            out.append(f"<mi{style}{attributes}>{token}</mi>")
        elif token[0].isdigit():
            out.append(f"<mn>{token}</mn>")
        elif token == "∂":
            out.append('<mo lspace="0.2em" rspace="0">∂</mo>')
        elif token == "−" and (not out or out[-1] in ("<mo>,</mo>", '<mo stretchy="false">(</mo>')):
            out.append('<mo form="prefix" lspace="0" rspace="0">−</mo>')
        else:
            out.append(f'<mo stretchy="false">{token}</mo>' if token in "()" else f"<mo>{token}</mo>")
    return f"<math>{''.join(out)}</math>"


def for_page() -> dict[str, Any]:
    """Everything that the page's script needs to know."""
    steps = []
    for number, step in sorted(STEPS.items()):
        lesson = LESSONS[number]
        steps.append(
            {
                "title": step.title,
                "drawing": told(lesson.drawing),
                "misreading": marked(lesson.misreading),
                "measured": marked(lesson.measured),
                **words(number)._asdict(),
                "formula": mathml(lesson.formula),
                "pokes": [list(poke) for poke in lesson.pokes],
                "breaks": [list(wrong) for wrong in lesson.breaks],
            }
        )
    return {
        "steps": steps,
        "acting": {name: marked(text) for name, text in ACTING._asdict().items()},
        "film": [list(shot) for shot in FILM],
        "filmed": marked(
            "Critic 1 over all actions in one state, update by update, its target dashed. {{film.chosen}}"
        ),
        "questions": [[each.question, marked(each.answer), each.moment] for each in QUESTIONS],
        "races": {name: race._asdict() for name, race in RACES.items()},
        "measures": MEASURES,
    }

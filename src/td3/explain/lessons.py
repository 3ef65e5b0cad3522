"""The words of the lesson: what the page, the docs, the film and the notebook say beside the code.

What a step does, why, and what happens without it stand in its own docstring; here is what a docstring has no room for.
"""

import inspect
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from td3.algorithm.registry import STEPS


class Lesson(NamedTuple):
    """A step beside its code."""

    misreading: str
    formula: str
    drawing: str
    pokes: Sequence[tuple[Any, ...]]
    breaks: Sequence[tuple[str, str]]


class Words(NamedTuple):
    """The three parts of a step's docstring, as sentences."""

    what: str
    why: str
    without: str


class Question(NamedTuple):
    """A question on a misreading, its answer, and the moment of the page that shows it."""

    question: str
    answer: str
    moment: str


class Shot(NamedTuple):
    """A piece of the film: seconds, which update of the pair, step, row of the batch, from t to t, what is said."""

    seconds: float
    update: int
    step: int
    row: int
    start: float
    end: float
    caption: str


ROW = ("row",)
# fmt: off
LESSONS: dict[int, Lesson] = {
    1: Lesson(
        "The memory is no diary that only grows: it is a ring, and when it is full the oldest transition makes room.",
        "memory = newest N of (s, a, r, s', d)",
        "A ring of slots fills with transitions; the same transitions appear as dots on the plane of states.",
        [("slider", "capacity", 200, 8000, 100, "capacity")],
        [("oldest", "when full, keep the oldest")],
    ),
    2: Lesson(
        "The target is not a second policy to choose from. It is born equal, never trained, and only follows.",
        "a = middle + half · tanh(net(s)) ; target = copy(actor)",
        "The actor's policy as a map over the states, and its weights being copied into the target.",
        [("slider", "low", -1, -0.1, 0.05, "lowest action"), ("slider", "high", 0.1, 1, 0.05, "highest action")],
        [("symmetric", "scale by the highest action only")],
    ),
    3: Lesson(
        "Twins are not copies of each other: they share the task and the data, never the weights they start from.",
        "Q1 ≠ Q2 ; Q1' = copy(Q1) ; Q2' = copy(Q2)",
        "Two critics score every action in one state, and disagree; their targets agree with them exactly.",
        [ROW],
        [("twins", "make critic 2 a copy of critic 1")],
    ),
    4: Lesson(
        "A batch is not the last few moments. It is drawn anew from the whole memory, and a row may be drawn twice.",
        "(s, a, r, s', d) ∼ uniform(memory)",
        "Dots on the plane of states leap into the rows of a table: the batch.",
        [("slider", "seed", 0, 9, 1, "new seed"), ROW],
        [("newest", "take the newest rows only")],
    ),
    5: Lesson(
        "a' is not the action that was done next, and not the online actor's: the target actor is asked what it would do.",
        "a' = actor'(s')",
        "Each row's next state enters the target actor; a tick lands on the action axis.",
        [ROW],
        [("online", "ask the online actor instead")],
    ),
    6: Lesson(
        "This noise is not exploration. No environment ever feels it; it only blurs the point at which the targets are read.",
        "ã = clip(a' + clip(σ · N(0, 1), −c, c), low, high)",
        "A bell of noise around each next action: first a move of at most c, then back inside the action range.",
        [("slider", "sigma", 0, 1, 0.05, "noise σ"), ("slider", "clip", 0, 1, 0.05, "bound c"), ROW],
        [("noclamp", "no clamp to the range"), ("onenoise", "one noise for all rows"), ("noclip", "no bound on the noise")],
    ),
    7: Lesson(
        "Both critics must judge the same noisy action. What they differ in is opinion, not question.",
        "Q1'(s', ã), Q2'(s', ã)",
        "Two target curves over all actions, each read at the smoothed next action.",
        [("slider", "aim", -1, 1, 0.02, "drag a′"), ROW],
        [("twonoise", "another noise for each critic")],
    ),
    8: Lesson(
        "The smaller score is taken row by row, not the smaller critic: who is lower changes from state to state.",
        "min(Q1', Q2')",
        "The lower envelope of two curves thickens; for eight rows, the lower of two opinions is ringed.",
        [ROW],
        [("mean", "keep the mean"), ("max", "keep the larger"), ("first", "ask critic 1 only")],
    ),
    9: Lesson(
        "A time-out is not a death. The episode stops, the task goes on, so its row bootstraps like any other.",
        "y = r + γ (1 − d) min(Q1', Q2')",
        "Reward and discounted future as stacked blocks; in a row that truly ended the second block falls away.",
        [("slider", "gamma", 0, 1, 0.01, "discount γ"), ("toggle", "dead", "this row ended"), ROW],
        [("nodeath", "drop (1 − d)"), ("timeout", "treat a time-out as death")],
    ),
    10: Lesson(
        "The critics are asked about the stored action, even if today's actor would do otherwise: only of it is r known.",
        "Q1(s, a), Q2(s, a)",
        "The online critics' curves, read at the stored action, with the distance to the Bellman target y.",
        [ROW],
        [("ownaction", "score the actor's action instead")],
    ),
    11: Lesson(
        "One y serves both critics; each is compared with it row by row, in shapes that match: (B,) with (B,).",
        "loss = mean((Q1 − y)²) + mean((Q2 − y)²)",
        "Every error is drawn as a square; the squares pour into two bars, and the bars add up to the loss.",
        [ROW],
        [("broadcast", "shape (B, 1) against (B,)"), ("half", "halve the squared error")],
    ),
    12: Lesson(
        "Minimising the loss must not pull y toward the critics: no gradient passes through a target. In practice it is Adam.",
        "Q ← Q − Adam(∂loss / ∂Q)",
        "The gradient sweeps from right to left through both critics, their cells move, and their curves approach y.",
        [("slider", "rate", 1, 10, 1, "learning rate ×"), ("toggle", "magnify", "magnify"), ROW],
        [("leak", "let the targets learn too"), ("onecritic", "train critic 1 only")],
    ),
    13: Lesson(
        "The actor climbs at its own action, not at the stored one, and on critic 1 alone; critic 2 is not asked.",
        "actor ← actor + Adam(∂ mean(Q1(s, actor(s))) / ∂ actor)",
        "Critic 1 turns to glass; its slope enters the actor, whose action moves uphill. On other updates: not this time.",
        [("choice", "delay", [1, 2, 4], "policy delay"), ("toggle", "magnify", "magnify"), ROW],
        [("both", "climb the mean of both"), ("least", "climb the smaller of both"), ("stored", "use the stored action")],
    ),
    14: Lesson(
        "Polyak averaging is not copying now and then: the target moves at every actor turn, each time by half a percent.",
        "actor' ← (1 − τ) actor' + τ · actor",
        "Weights of the actor's target glide the share tau toward the actor: at true scale, then magnified.",
        [("slider", "tau", 0, 0.5, 0.005, "share τ"), ("toggle", "magnify", "magnify"), ("choice", "delay", [1, 2, 4], "policy delay")],
        [("everyupdate", "glide at every update"), ("hardcopy", "copy the whole network")],
    ),
    15: Lesson(
        "The critics' targets do not follow at every update: they wait for the actor's turn, as step 14 does.",
        "Q1' ← (1 − τ) Q1' + τ · Q1 ; Q2' ← (1 − τ) Q2' + τ · Q2",
        "Weights of both critics' targets glide the share tau toward their critics: at true scale, then magnified.",
        [("slider", "tau", 0, 0.5, 0.005, "share τ"), ("toggle", "magnify", "magnify"), ("choice", "delay", [1, 2, 4], "policy delay")],
        [("everyupdate", "glide at every update"), ("hardcopy", "copy the whole network")],
    ),
}

FILM = (
    Shot(4.4, 0, 12, 0, 0.0, 0.55, "The loss flows back through both critics and stops at their inputs."),
    Shot(0.8, 0, 12, 0, 0.55, 0.55, "The loss flows back through both critics and stops at their inputs."),
    Shot(3.0, 0, 12, 0, 0.55, 1.0, "Every weight of both critics takes one step. Nothing else moves."),
    Shot(0.8, 0, 12, 0, 1.0, 1.0, "Every weight of both critics takes one step. Nothing else moves."),
    Shot(2.6, 0, 13, 4, 0.5, 0.5, "This update is odd: the actor and all targets wait."),
    Shot(2.2, 1, 12, 0, 0.5, 1.0, "The next one improves the critics again. It is even: it goes on."),
    Shot(3.0, 1, 13, 4, 0.0, 0.35, "Critic 1 turns to glass: the gradient passes, its weights stay."),
    Shot(2.6, 1, 13, 4, 0.35, 0.7, "It reaches the actor: these weights alone may move."),
    Shot(2.6, 1, 13, 4, 0.7, 1.0, "The actor's action climbs uphill on critic 1."),
    Shot(0.8, 1, 13, 4, 1.0, 1.0, "The actor's action climbs uphill on critic 1."),
    Shot(2.8, 1, 14, 4, 0.15, 0.62, "The actor's target glides: almost nothing moves. That is the point."),
    Shot(2.0, 1, 14, 4, 0.62, 1.0, "The same movement, magnified."),
    Shot(3.2, 1, 15, 4, 0.2, 1.0, "Both critics' targets glide too, in the same update."),
    Shot(1.2, 1, 15, 4, 1.0, 1.0, "Both critics' targets glide too, in the same update."),
)

QUESTIONS = (
    Question("Is the noise of step 6 how TD3 explores?",
        "No. It blurs the target's action inside the update, and no environment ever feels it: target policy smoothing. "
        "Exploration noise is added when acting, outside the fifteen steps.", "update=1594&step=6&t=0.5"),
    Question("An episode was stopped after 100 steps by the clock. Does its last row bootstrap?",
        "Yes. A time-out only stops watching; the task would have gone on, so y = r + γ min as in any other row. "
        "Switch on “treat a time-out as death” and see that row's y jump.", "update=1594&step=9&t=1&row=3"),
    Question("A cart fell off the rail. What is y of that row?",
        "The reward alone: (1 − terminated) is 0, so the second block falls away. Without that factor, death looks as good "
        "as going on.", "update=1594&step=9&t=0.8&row=2"),
    Question("Does the actor learn from the action that is stored in the batch?",
        "No. Step 13 takes the stored states only, and the actor's own action in them. The stored action does not depend "
        "on the actor's weights: it has no slope there.", "update=1594&step=13&t=1&break=stored"),
    Question("Which critic does the actor climb?",
        "Critic 1, and only it. The mean of both, or the smaller of both, is another algorithm.",
        "update=1594&step=13&t=0.6"),
    Question("Is the minimum of step 8 the score of one critic, the pessimist?",
        "No. It is taken row by row; the eight rows show that now the one and now the other is lower.",
        "update=1594&step=8&t=1"),
    Question("Do the two target critics see the same a′?",
        "Yes: one noise for both. With a noise for each they would differ in the question, not in the opinion.",
        "update=1594&step=7&t=1"),
    Question("Who plays a′: the memory, the actor, or the target actor?",
        "The target actor, in the stored next state. The online actor would move the aim whenever it learns.",
        "update=1594&step=5&t=1"),
    Question("Does minimising the loss also change y?",
        "No. y comes from the targets, and no gradient passes through them: in step 12 only the two critics move.",
        "update=1594&step=12&t=0.5"),
    Question("Is step 12 stochastic gradient descent?",
        "Lessons say so; all published code uses Adam, and so does the recorded run (`--td3.optimizer sgd` is the lesson's).",
        "update=1594&step=12&t=1"),
    Question("Do steps 14 and 15 happen at every update?",
        "No: in the same updates as step 13, every second one. In an odd update all targets wait.",
        "update=1593&step=15"),
    Question("How far does a target move in one Polyak step?",
        "Half a percent of the way to its network (τ = 0.005). At true scale nothing seems to move; after 139 such steps it has "
        "gone half of the way.", "update=1594&step=14&t=0.6"),
)
# fmt: on


def words(number: int) -> Words:
    """What, why, and what without it, from the docstring of the step."""
    text = " ".join((inspect.getdoc(STEPS[number].function) or "").split())
    parts = re.fullmatch(r".*? What: (.*?) Why: (.*?) If you leave it out: (.*)", text)
    assert parts is not None, f"step {number} does not say what, why, and what without it"
    return Words(*(_sentence(part) for part in parts.groups()))


def _sentence(text: str) -> str:
    """With a capital letter, unless it begins with a formula; signs as one would print them."""
    plain = text.replace("+-", "±").replace("<-", "←").replace(" * ", " · ")
    return plain if re.match(r"\S'|\S* ?[=←(]|min", plain) else plain[:1].upper() + plain[1:]


def first_sentence(number: int) -> str:
    """What one gets from a step, in its docstring's first line."""
    return (inspect.getdoc(STEPS[number].function) or "").split("\n")[0]


SYMBOLS = {
    "memory": "memory",
    "state": "s",
    "action": "a",
    "reward": "r",
    "next_state": "s2",
    "terminated": "d",
    "next_action": "a2",
    "noise": "sigma",
    "noise_clip": "clip",
    "next_score": "min",
    "target_score": "y",
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
    "ã": "a2",
    "r": "r",
    "d": "d",
    "y": "y",
    "γ": "gamma",
    "τ": "tau",
    "σ": "sigma",
    "c": "clip",
    "loss": "loss",
    "memory": "memory",
    "actor": "actor",
    "actor'": "actor_target",
    "Q1": "q1",
    "Q2": "q2",
    "Q1'": "q1t",
    "Q2'": "q2t",
    "Q": "critics",
    "min": "min",
}


PRIME = '<mo lspace="0" rspace="0">′</mo>'


def mathml(formula: str) -> str:
    """A formula written on one line as MathML; what is also in the code or the drawing carries its symbol."""
    out: list[str] = []
    before = ""
    for token in re.findall(r"[A-Za-zãγτσ]+\d?'?|\d+|\S", formula):
        if before[:1].isalpha() and token[0].isalpha():  # two words: MathML would set them as one
            out.append('<mspace width="0.3em"/>')
        before = token
        attributes = f' data-sym="{_MARKED[token]}"' if token in _MARKED else ""
        name = token.rstrip("'")
        primed = token.endswith("'")
        if token == "²":
            out[-1] = f"<msup><mrow>{out[-1]}</mrow><mn>2</mn></msup>"
        elif re.fullmatch(r"Q\d'?", token):
            below = f"<mi>Q</mi><mn>{name[1]}</mn>"
            inside = f"<msubsup>{below}{PRIME}</msubsup>" if primed else f"<msub>{below}</msub>"
            out.append(f"<mrow{attributes}>{inside}</mrow>")
        elif primed:
            out.append(f"<mrow{attributes}><mi>{name}</mi>{PRIME}</mrow>")
        elif token[0].isalpha():
            style = ' mathvariant="normal"' if len(token) > 1 else ""
            out.append(f"<mi{style}{attributes}>{token}</mi>")
        elif token[0].isdigit():
            out.append(f"<mn>{token}</mn>")
        elif token == "∂":
            out.append('<mo lspace="0.2em" rspace="0">∂</mo>')
        elif token == ";":
            out.append('<mspace width="1.6em"/>')
        elif token == "−" and out and out[-1] in ("<mo>,</mo>", "<mo>(</mo>"):
            out.append('<mo form="prefix" lspace="0" rspace="0">−</mo>')
        else:
            out.append(f"<mo>{token}</mo>")
    return f"<math>{''.join(out)}</math>"


def for_page() -> dict[str, Any]:
    """Everything that the page's script needs to know."""
    steps = []
    for number, step in sorted(STEPS.items()):
        lesson = LESSONS[number]
        steps.append(
            {
                "title": step.title,
                "drawing": lesson.drawing,
                "misreading": lesson.misreading,
                **words(number)._asdict(),
                "formula": mathml(lesson.formula),
                "pokes": [list(poke) for poke in lesson.pokes],
                "breaks": [list(wrong) for wrong in lesson.breaks],
            }
        )
    return {"steps": steps, "film": [list(shot) for shot in FILM], "questions": [list(each) for each in QUESTIONS]}

"""The texts of the lesson: what the page, the docs, the film and the notebook say beside the code.

What a step does, why, and what happens without it stand in its own docstring; here is what a docstring has no room for.
"""

import inspect
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from td3.algorithm.registry import STEPS
from td3_lessons.explain.breaks import MEASURES, RACES


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
    """A piece of the film: seconds, which update of the pair, step, from t to t, caption."""

    seconds: float
    update: int
    step: int
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
        [("slider", "capacity", 200, 8000, 100, "capacity")],
        [("oldest", "when full, keep the oldest")],
    ),
    2: Lesson(
        "The target is not a second policy to choose from. It starts equal, is never trained, and only follows.",
        "π(s) = middle + | half · tanh(net(s)) ; π' = copy(π)",
        "The actor's policy as a map over the states, and its weights being copied into the target.",
        [("slider", "low", -1, -0.1, 0.05, "lowest action"), ("slider", "high", 0.1, 1, 0.05, "highest action")],
        [("symmetric", "scale by the highest action only")],
    ),
    3: Lesson(
        "The second critic is no copy of the first: they share the task, the data and y, but not their initial weights.",
        "Q1 ≠ Q2 ; Q1' = copy(Q1) ; Q2' = copy(Q2)",
        "Two critics rate every action in one state, and disagree; their targets agree with them exactly.",
        [ROW],
        [("twins", "make critic 2 a copy of critic 1")],
    ),
    4: Lesson(
        "A batch is not the last few transitions. It is drawn anew from the whole buffer, and a row may be drawn twice.",
        "(s, a, r, s', d) ∼ | uniform(buffer)",
        "Dots on the plane of states move into the rows of a table: the batch.",
        [("slider", "seed", 0, 9, 1, "new seed"), ROW],
        [("newest", "take the newest rows only")],
    ),
    5: Lesson(
        "a' is not the action that was taken next, and not the online actor's: it is what the target actor would do in s'.",
        "a' = π'(s')",
        "Each row's next state enters the target actor; a mark lands on the action axis.",
        [ROW],
        [("online", "use the online actor instead")],
    ),
    6: Lesson(
        "This noise is not exploration. No environment receives it; it only spreads the point at which the targets are read.",
        "ã = clip( | a' + clip(σ · N(0, 1), −c, c), | low, high)",
        "Noise around each next action: first a move of at most c, then back inside the action range.",
        [("slider", "sigma", 0, 1, 0.05, "noise σ"), ("slider", "clip", 0, 1, 0.05, "bound c"), ROW],
        [("noclamp", "no clamp to the range"), ("onenoise", "one noise for all rows"), ("noclip", "no bound on the noise")],
    ),
    7: Lesson(
        "Both critics must evaluate the same ã. They may differ in their answer, not in the question.",
        "Q1'(s', ã) , | Q2'(s', ã)",
        "Two target curves over all actions, each read at the smoothed action ã.",
        [("slider", "aim", -1, 1, 0.02, "move ã"), ROW],
        [("twonoise", "another noise for each critic")],
    ),
    8: Lesson(
        "The smaller Q-value is taken row by row, not from one critic for good: which is lower changes from row to row.",
        "min(Q1'(s', ã), | Q2'(s', ã))",
        "The lower envelope of two curves thickens; for eight rows, the lower of two Q-values is ringed.",
        [ROW],
        [("mean", "keep the mean"), ("max", "keep the larger"), ("first", "use critic 1 only")],
    ),
    9: Lesson(
        "A time-out is not a termination. The episode stops, the task goes on, so its row bootstraps like any other.",
        "y = r + | γ (1 − d) | min(Q1', Q2')",
        "Reward and discounted future as stacked blocks; in a row that terminated the second block falls away.",
        [("slider", "gamma", 0, 1, 0.01, "discount γ"), ("toggle", "dead", "this row ended"), ROW],
        [("nodeath", "drop (1 − d)"), ("timeout", "treat a time-out as a termination")],
    ),
    10: Lesson(
        "The critics evaluate the stored action, even if today's actor would act otherwise: for it alone r is known.",
        "Q1(s, a) , | Q2(s, a)",
        "The online critics' curves, read at the stored action, with the distance to the Bellman target y.",
        [ROW],
        [("ownaction", "evaluate the actor's action instead")],
    ),
    11: Lesson(
        "One y serves both critics, row by row, in matching shapes: (B,) with (B,). Half the squared error is a choice, not a fault.",
        "loss = | mean((Q1 − y)²) + | mean((Q2 − y)²)",
        "Every error is drawn as a square; the squares pour into two bars, and the bars add up to the loss.",
        [ROW, ("toggle", "half", "half the squared error")],
        [("broadcast", "shape (B, 1) against (B,)")],
    ),
    12: Lesson(
        "Minimizing the loss does not pull y toward the critics: no gradient passes into a target network.",
        "θ ← θ − | Adam(∂loss / ∂θ)",
        "The gradient runs from the loss through both critics, their weights move, and their Q-values approach y.",
        [("slider", "rate", 1, 10, 1, "learning rate ×"), ("toggle", "magnify", "magnify"), ROW],
        [("leak", "let the targets learn too"), ("onecritic", "train critic 1 only")],
    ),
    13: Lesson(
        "The actor is improved at its own action, not at the stored one, and on critic 1 alone. Minus: optimizers minimize.",
        "loss = | − mean(Q1(s, π(s))) ; φ ← φ − | Adam(∂loss / ∂φ)",
        "A tangent on Q1's curve at the actor's point; the gradient passes through critic 1 into the actor, whose action moves uphill. On other updates: not in this update.",
        [("choice", "delay", [1, 2, 4], "policy delay"), ("toggle", "magnify", "magnify"), ROW],
        [("both", "ascend the mean of both"), ("least", "ascend the smaller of both"), ("stored", "use the stored action")],
    ),
    14: Lesson(
        "Polyak averaging is not copying now and then: the target moves at every actor update, each time by half a percent.",
        "φ' ← | (1 − τ) φ' + τ φ",
        "One weight of the actor and of its target over 2,000 updates, with the half-life of the lag; below, this update's movement.",
        [("slider", "tau", 0, 0.5, 0.005, "share τ"), ("toggle", "magnify", "magnify"), ("choice", "delay", [1, 2, 4], "policy delay")],
        [("everyupdate", "move at every update"), ("hardcopy", "copy the whole network")],
    ),
    15: Lesson(
        "The critic targets do not follow at every update: they move when the actor does, as in step 14.",
        "θ1' ← | (1 − τ) θ1' + τ θ1 ; θ2' ← | (1 − τ) θ2' + τ θ2",
        "One weight of critic 1 and of its target over 2,000 updates; below, y of one row with target networks and from the online networks.",
        [("slider", "tau", 0, 0.5, 0.005, "share τ"), ("choice", "delay", [1, 2, 4], "policy delay"), ROW],
        [("everyupdate", "move at every update"), ("hardcopy", "copy the whole network")],
    ),
}

FILM = (
    Shot(2.6, 0, 11, 0.0, 0.9, "The loss: each row's distance to y, squared, for both critics."),
    Shot(2.8, 0, 12, 0.0, 0.5, "Its gradient runs back into both critics, and stops before y."),
    Shot(2.6, 0, 12, 0.5, 1.0, "Every weight of both critics moves a little: the Q-values bend toward y."),
    Shot(0.9, 0, 12, 1.0, 1.0, "Every weight of both critics moves a little: the Q-values bend toward y."),
    Shot(2.2, 0, 13, 0.5, 0.5, "This update is odd: the actor and all target networks wait."),
    Shot(2.2, 1, 12, 0.3, 1.0, "The next update improves the critics again. It is even: it goes on."),
    Shot(2.4, 1, 13, 0.0, 0.34, "The actor's own action, on critic 1's curve."),
    Shot(2.4, 1, 13, 0.34, 0.72, "The tangent says which way is up; the gradient passes through critic 1."),
    Shot(2.6, 1, 13, 0.72, 1.0, "It moves the actor's weights alone: the action climbs."),
    Shot(0.9, 1, 13, 1.0, 1.0, "It moves the actor's weights alone: the action climbs."),
    Shot(3.0, 1, 14, 0.1, 1.0, "The actor target follows, half a percent of the way: this is its lag."),
    Shot(3.0, 1, 15, 0.1, 0.8, "Both critic targets follow too, in the same update."),
    Shot(2.4, 1, 15, 0.8, 1.0, "So y itself shifts a little, and the next update begins."),
)

QUESTIONS = (
    Question("What is a Q-value, and which numbers of the task does it add up?",
        "The discounted sum of all future rewards after doing action a in state s: here minus the squared distance from the "
        "middle at every step, and −60 for a fall. Drive the cart at the top of the page and watch it add up.", "step=10&t=1"),
    Question("Is the noise of step 6 how TD3 explores?",
        "No. It is added to the target policy's action inside the update, and no environment receives it: target policy "
        "smoothing. Exploration noise is added when acting, outside the fifteen steps (the edge from actor to environment).",
        "step=6&t=0.5"),
    Question("What harm does unclipped target noise do?",
        "Rare large draws evaluate the targets far from the policy's action, where the critics have little data: y then "
        "mixes in Q-values of actions far from any policy's. The bound c keeps the average local.", "step=6&t=1&break=noclip&sigma=0.6"),
    Question("Do the two target critics see the same ã?",
        "Yes: one noise for both. With a noise for each they would differ in the question, not in the answer.", "step=7&t=1"),
    Question("Why a minimum of two critics, and not of ten?",
        "The minimum removes most of the overestimation already with two. Each further critic lowers it more: with ten it is "
        "biased far below the truth, and the actor avoids whatever the critics disagree on. Change N in the experiment.",
        "step=8&t=1&toy=10"),
    Question("Is the minimum of step 8 the Q-value of one critic, the pessimist?",
        "No. It is taken row by row; the eight rows show that now the one and now the other is lower.", "step=8&t=1"),
    Question("Is the minimum unbiased?",
        "No. The smaller of two noisy estimates is biased low, and on Rail TD3 ends below the exact Q where DDPG ends far "
        "above (`td3 ladder all` measures both). Low errors are avoided by the actor; high errors are sought.", "step=8&t=1&compare=both"),
    Question("An episode was stopped after 100 steps by the time limit. Does its last row bootstrap?",
        "Yes. A time-out ends the episode, not the task, so y = r + γ min as in any other row. Switch on “treat a time-out "
        "as a termination” and see that row's y lose its second block.", "step=9&t=1&row=3"),
    Question("A cart fell off the rail. What is y of that row?",
        "The reward alone: (1 − terminated) is 0, so the second block falls away. Without that factor y adds the value of a "
        "future that does not exist.", "step=9&t=0.8&row=2"),
    Question("Does minimizing the loss also change y?",
        "No. y comes from the target networks, and no gradient passes into them (the wall on the map): in step 12 only the two "
        "critics move.", "step=12&t=0.5"),
    Question("Is step 12 stochastic gradient descent?",
        "Lessons say so; all published code uses Adam, and so does the recorded run (`--td3.optimizer sgd` is the lesson's).",
        "step=12&t=1"),
    Question("Why is the actor's loss minus Q?",
        "Optimizers minimize, and Q1 is to be maximized: minimizing −Q1 is gradient ascent on Q1. The formula and the code both "
        "have the minus; the drawing shows the ascent.", "step=13&t=1"),
    Question("Does the actor learn from the action that is stored in the batch?",
        "No. Step 13 takes the stored states only, and the actor's own action in them. The stored action does not depend on "
        "the actor's weights: its gradient there is 0.", "step=13&t=1&break=stored"),
    Question("Which critic does the actor ascend?",
        "Critic 1, and only it. The mean of both, or the smaller of both, is another algorithm.", "step=13&t=0.6"),
    Question("Why do actor and targets move only every second update?",
        "So that the critics are fitted twice between two changes of the policy they evaluate. Moving everything at every "
        "update halves the lag of the targets. Train it both ways below: “no delay”.", "update=odd&step=13&t=1&race=nodelay"),
    Question("How long is the lag of a target network?",
        "With τ = 0.005 a target covers half of the way in 139 of its own moves, which is 278 updates with a delay of 2. The "
        "drawing has this half-life to scale; change τ.", "step=14&t=1"),
    Question("Would TD3 work without target networks?",
        "y would be computed from the networks that are being fitted to it and move with every one of their steps: compare the "
        "thin and the thick line, and train it below.", "step=15&t=1&race=notargets"),
    Question("Why does every tensor shape begin with 1?",
        "The first axis is the seed: several seeds train side by side in one tensor, and the recorded run has one. A shape "
        "[2, 1, 64] is two critics, one seed, 64 rows.", "step=7&t=1"),
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
                "drawing": lesson.drawing,
                "misreading": lesson.misreading,
                **words(number)._asdict(),
                "formula": mathml(lesson.formula),
                "pokes": [list(poke) for poke in lesson.pokes],
                "breaks": [list(wrong) for wrong in lesson.breaks],
            }
        )
    return {
        "steps": steps,
        "film": [list(shot) for shot in FILM],
        "questions": [list(each) for each in QUESTIONS],
        "races": {name: race._asdict() for name, race in RACES.items()},
        "measures": MEASURES,
    }

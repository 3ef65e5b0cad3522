"use strict";
// The page around the drawings: the state (all of it in the address), the controls, the keys.

const lessons = JSON.parse(document.getElementById("lessons").textContent);
const $ = (id) => document.getElementById(id);
const last = facts.updates.length - 1;
const start = facts.updates.includes(facts.start) ? facts.updates.indexOf(facts.start) : last;
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
const fresh = () => ({ u: start, step: 1, t: 1, film: null, toy: 2, draw: 0, race: "max", pokes: { ...POKES, breaks: [] } });
const NUMBERS = ["row", "seed", "capacity", "low", "high", "sigma", "clip", "aim", "gamma", "rate", "delay", "tau"];
const SWITCHES = ["dead", "magnify", "half"];
const KNOWN_BREAKS = lessons.steps.flatMap((s) => s.breaks.map((b) => b[0]));

function parse(hash) {
  const S = fresh(),
    given = new URLSearchParams(hash.replace(/^#/, ""));
  const number = (name, low, high) => {
    const v = Number(given.get(name));
    return given.get(name) !== null && Number.isFinite(v) ? Math.max(low, Math.min(high, v)) : null;
  };
  const at = facts.updates.indexOf(number("update", 0, 1e12));
  if (at >= 0) S.u = at;
  // "odd" is the update before the one at which the page opens, in which the actor waits.
  if (given.get("update") === "odd") S.u = Math.max(0, start - 1);
  S.toy = Math.round(number("toy", 1, 10) ?? S.toy);
  S.draw = Math.round(number("draw", 0, 999) ?? S.draw);
  if (given.get("race") in lessons.races) S.race = given.get("race");
  S.step = Math.round(number("step", 1, 15) ?? S.step);
  S.t = number("t", 0, 1) ?? (given.has("step") ? 1 : S.t);
  S.film = number("film", 0, 1);
  const limits = {
    row: [0, 7],
    seed: [0, 99],
    capacity: [batchSize, POKES.capacity],
    low: [-1e6, 1e6],
    high: [-1e6, 1e6],
    sigma: [0, 5],
    clip: [0, 5],
    aim: [facts.low[0], facts.high[0]],
    gamma: [0, 1],
    rate: [0.1, 100],
    delay: [1, 16],
    tau: [0, 1],
  };
  NUMBERS.forEach((name) => {
    const v = number(name, ...limits[name]);
    if (v !== null) S.pokes[name] = v;
  });
  ["row", "seed", "delay", "capacity"].forEach((name) => {
    S.pokes[name] = Math.round(S.pokes[name]);
  });

  SWITCHES.forEach((name) => {
    if (given.has(name)) S.pokes[name] = given.get(name) === "1";
  });
  if (["exact", "ddpg", "both", "none"].includes(given.get("compare"))) S.pokes.compare = given.get("compare");
  S.pokes.breaks = (given.get("break") || "")
    .split(",")
    .filter((b) => KNOWN_BREAKS.includes(b))
    .sort();
  if (facts.replaced) S.pokes = { ...fresh().pokes, row: S.pokes.row, magnify: S.pokes.magnify };
  return S;
}
function address(S) {
  const out = new URLSearchParams();
  if (S.film !== null) {
    out.set("film", S.film.toFixed(4));
    return `#${out}`;
  }
  out.set("update", facts.updates[S.u]);
  out.set("step", S.step);
  out.set("t", String(Math.round(S.t * 1000) / 1000));
  NUMBERS.forEach((name) => {
    if (S.pokes[name] !== POKES[name]) out.set(name, S.pokes[name]);
  });
  SWITCHES.forEach((name) => {
    if (S.pokes[name] !== POKES[name]) out.set(name, S.pokes[name] ? "1" : "0");
  });
  if (S.pokes.compare !== POKES.compare) out.set("compare", S.pokes.compare);
  if (S.pokes.breaks.length) out.set("break", S.pokes.breaks.join(","));
  const plain_ = fresh();
  ["toy", "draw", "race"].forEach((name) => {
    if (S[name] !== plain_[name]) out.set(name, S[name]);
  });
  return `#${out}`.replaceAll("%2C", ",");
}

// The film: a schedule of moments, each drawn by the same functions.
const delay = facts.settings.policy_delay;
const film = lessons.film.filter(([, update, step]) => delay > 1 || update === 1 || step !== 13);
const filmLength = film.reduce((s, shot) => s + shot[0], 0);
// In a run with another delay than 2 it is not the odd and the even updates that differ.
const spoken = (caption) =>
  delay === 2
    ? caption
    : caption
        .replace("This update is odd", "Not the actor's turn")
        .replace("It is even: it goes on.", "Now the actor moves.");
const filmPair = start - (start % 2);
// In the odd update the film follows the row whose Q-values move most toward y; in the even one, the page's own row.
let filmRow = null;
function rowOfFilm(u) {
  if (!facts.truth) return 0;
  if (u === start) return POKES.row;
  if (filmRow === null) {
    const R = run(u, POKES),
      gain = (j) => [0, 1].reduce((s, i) => s + Math.abs(R.q[i][j] - R.y[j]) - Math.abs(R.qAfter[i][j] - R.y[j]), 0),
      half = (facts.high[0] - facts.low[0]) / 2,
      inside = (j) => Math.abs(R.batch.action[j * actionSize] - (facts.high[0] + facts.low[0]) / 2) < 0.9 * half,
      usual = R.shown.map((j) => (R.batch.terminated[j] || !inside(j) ? -1 : gain(j)));
    filmRow = usual.indexOf(Math.max(...usual));
  }
  return filmRow;
}
function filmState(share) {
  let left = share * filmLength;
  let shot = film.at(-1),
    inside = 1;
  for (const piece of film) {
    if (left < piece[0]) {
      shot = piece;
      inside = left / piece[0];
      break;
    }
    left -= piece[0];
  }
  const [, offset, step, from, to, caption] = shot,
    u = Math.min(filmPair + offset, last);
  return {
    ...fresh(),
    u,
    step,
    t: from + (to - from) * inside,
    film: share,
    caption: spoken(caption),
    pokes: { ...POKES, row: rowOfFilm(u), compare: "none", breaks: [] },
  };
}
const seen = (S) => (S.film === null ? S : filmState(S.film));

const count = (all, test) => Array.from(all).filter(test).length;
const plain = (R) => run(R.u, { ...POKES });
const mean = (v) => v.reduce((a, b) => a + b, 0) / v.length;
// What each switch says: the number that has gone wrong.
const SAYS = {
  oldest: (R, S) => {
    const cap = S.pokes.capacity,
      n = facts.filled[R.u];
    return n > cap
      ? `the buffer stopped taking transitions after ${group(cap)}: the newest ${group(n - cap)} are lost, and the batches show the first, random actions only.`
      : `not full yet: make the capacity smaller than ${group(n)} to see the newest being lost.`;
  },
  symmetric: () => "with bounds that are not symmetric, the policy gives actions below the lowest allowed one.",
  twins: () => "critic 2 equals critic 1: they never disagree, so the smaller of two is the only one.",
  newest: () => `all ${batchSize} rows are consecutive: a batch of one stretch of time, and its gradient forgets the rest.`,
  online: (R) =>
    `y now follows the online actor: its actions differ from the target's by up to ${show(Math.max(...Array.from(R.next_target, (v, j) => Math.abs(v - R.next_action[j]))), 3)} here, and change with each of its steps.`,
  noclamp: (R) =>
    `${count(R.smoothed, (v, j) => v < facts.low[0] - 1e-6 || v > facts.high[0] + 1e-6)} of ${batchSize * actionSize} smoothed actions lie outside the range, where no critic has data.`,
  onenoise: (R) => `all ${batchSize} rows move by the same ${show(R.blur[0], 3)}: nothing is averaged out within the batch.`,
  noclip: (R, S) =>
    `${count(R.blur, (v, j) => Math.abs(v) > (S.pokes.clip * (facts.high[j % actionSize] - facts.low[j % actionSize])) / 2 + 1e-9)} of ${batchSize * actionSize} noises exceed c = ${show(S.pokes.clip, 2)} of half the range (at σ = ${show(S.pokes.sigma, 2)}); those rows read Q far from the policy's action.`,
  twonoise: (R) =>
    `in ${count(R.smoothed, (v, j) => Math.abs(v - R.second[j]) > 1e-6)} of ${batchSize * actionSize} places the critics evaluate different actions: their minimum compares nothing.`,
  mean: (R) =>
    `the mean is kept: ${show(mean(R.next_q) - minMean(R), 2)} higher on average than the smaller Q-value in this batch. One update shows little; train it for 5,000 below.`,
  max: (R) =>
    `the larger is kept: ${show(mean(R.next_q) - minMean(R), 2)} higher on average than the smaller Q-value in this batch. One update shows little; train it for 5,000 below.`,
  first: (R) =>
    `critic 1 alone is used, as in DDPG: ${show(mean(R.next_q) - minMean(R), 2)} higher on average than the smaller Q-value in this batch.`,
  nodeath: (R) => {
    const dead = count(R.batch.terminated, (v) => v === 1),
      whole = plain(R),
      j = R.shown.find((place) => R.batch.terminated[place]) ?? 0;
    return dead
      ? `${dead} of ${batchSize} rows terminated, and y adds a future that does not exist: here from ${show(whole.y[j], 1)} to ${show(R.y[j], 1)}. On Rail values are negative, so falling looks even worse than it is; where staying alive earns reward, it would look harmless.`
      : "this batch holds no termination; in one that does, y would add a future that does not exist.";
  },
  timeout: (R) => {
    const late = count(R.batch.timed_out, (v, j) => v === 1 && R.batch.terminated[j] === 0),
      j = R.shown.find((place) => R.batch.timed_out[place] && !R.batch.terminated[place]);
    return late
      ? `${late} of ${batchSize} rows ended at the time limit, and y treats them as terminations${j === undefined ? "" : `: one goes from ${show(plain(R).y[j], 2)} to ${show(R.y[j], 2)}`}. The future they lose has a cost here, so these states look better than they are.`
      : "this batch holds no time-out; in one that does, y would lose its future.";
  },
  ownaction: (R) =>
    `the Q-values are of other actions than those that gave r and s′: ${show(mean(Array.from(R.asked, (v, j) => Math.abs(v - R.batch.action[j]))), 2)} apart on average.`,
  broadcast: (R) =>
    `${batchSize} × ${batchSize} differences instead of ${batchSize}: the loss reads ${show(R.loss, 2)} instead of ${show(trueLoss(R), 2)}, and pulls every Q-value to the mean of all y.`,
  leak: (R) =>
    `the target networks moved in step 12, by up to ${show(Math.max(...R.targets[0].map((w, j) => Math.abs(R.targetsMoved[0][j] - w))), 4)}: y shifts while the critics are fitted to it.`,
  onecritic: (R) =>
    `critic 2 is not trained in this update: it keeps its loss of ${show(R.losses[1], 2)}, while critic 1 goes from ${show(R.losses[0], 2)} to ${show(R.lossesAfter[0], 2)}. Left so, the minimum is taken with random values.`,
  both: (R) =>
    R.slope
      ? `the actor ascends the mean: in this batch its gradient differs from critic 1's by ${show(mean(Array.from(R.slope, (v, j) => Math.abs(v - plain(R).slope[j]))), 3)} on average. Another algorithm, not a failure.`
      : "the actor ascends the mean of both.",
  least: (R) =>
    R.slope
      ? `the actor ascends the smaller: in this batch its gradient differs from critic 1's by ${show(mean(Array.from(R.slope, (v, j) => Math.abs(v - plain(R).slope[j]))), 3)} on average. Another algorithm, not a failure.`
      : "the actor ascends the smaller of both.",
  stored: () => "the stored action does not depend on the actor: its gradient is 0, and the actor never learns.",
  everyupdate: () => "the targets also move in the updates between: the half-life of their lag falls from 278 to 139 updates.",
  hardcopy: () => "τ is 1: the target networks equal the online networks after every actor update, and y jumps with them.",
};
function banner(S, R) {
  if (!S.pokes.breaks.length) return "";
  const label = (id) => lessons.steps.flatMap((s) => s.breaks).find((b) => b[0] === id)[1];
  return S.pokes.breaks
    .map((id) => `<b>Broken: ${esc(label(id))}.</b> ${esc(SAYS[id](R, S).replace(/^./, (c) => c.toUpperCase()))}`)
    .join("<br>");
}

// Values: eight rows, shapes, sums, for each step.
function values(S, R) {
  const B = R.batch,
    A = actionSize,
    at = (all, size, j) => all[j * size],
    f = facts.settings;
  const table = (heads, cells) => ({ heads, rows: R.shown.map((j, n) => [n + 1, ...cells(j)]) });
  const b = batchSize,
    change = (p, q) => {
      let m = 0;
      for (let j = 0; j < p.length; j++) m = Math.max(m, Math.abs(q[j] - p[j]));
      return m;
    };
  const count_ = (p) => {
    const w = facts.sizes[p === R.actor ? "actor" : "critic"];
    return w.slice(1).reduce((sum, o, d) => sum + (w[d] + 1) * o, 0);
  };
  // Recorded, not assumed: how far the targets had moved when steps 14 and 15 came, and the critics after step 13.
  const still = has(`still.${R.u}`) ? array(`still.${R.u}`) : null;
  const resting = still
    ? Math.max(still[1], still[2])
    : Math.max(
        change(R.actorTarget, array(`actor_target_before.${R.u + 1}`)),
        ...[0, 1].map((i) => change(R.targets[i], twinsOf("critics_target_before", R.u + 1)[i])),
      );
  const moves = [
    ["largest move, critic 1", change(R.critics[0], R.criticsAfter[0]), 6],
    ["largest move, critic 2", change(R.critics[1], R.criticsAfter[1]), 6],
    [
      "largest move, all targets",
      Math.max(resting, change(R.targets[0], R.targetsMoved[0]), change(R.targets[1], R.targetsMoved[1])),
      6,
    ],
  ];
  const V = {
    1: () => ({
      shapes: [["buffer.rows", `[1, ${group(f.buffer_size)}, ${2 * facts.sizes.actor[0] + A + 2}]`]],
      sums: [
        ["added", facts.filled[R.u], 0],
        ["kept", Math.min(facts.filled[R.u], S.pokes.capacity), 0],
        ["numbers in a row", 2 * facts.sizes.actor[0] + A + 2, 0],
      ],
    }),
    2: () => ({
      shapes: [
        ["actor.parameters", `[1, ${count_(R.actor)}]`],
        ["actor_target.parameters", `[1, ${count_(R.actor)}]`],
      ],
      sums: [["largest difference of a weight", change(birth().actor, birth().target), 6]],
    }),
    3: () => ({
      shapes: [
        ["critics.parameters", `[2, 1, ${count_(R.critics[0])}]`],
        ["critics_target.parameters", `[2, 1, ${count_(R.critics[0])}]`],
      ],
      sums: [
        [
          "largest difference, critic 1 and critic 2",
          broken(S.pokes, "twins") ? 0 : change(R.critics[0], R.critics[1]),
          6,
        ],
        ["critic 1 and its target", change(R.critics[0], R.targets[0]), 6],
        ["critic 2 and its target", change(R.critics[1], R.targets[1]), 6],
      ],
    }),
    4: () => ({
      shapes: [
        ["state, next_state", `[1, ${b}, ${facts.sizes.actor[0]}]`],
        ["action", `[1, ${b}, ${A}]`],
        ["reward, terminated", `[1, ${b}]`],
      ],
      ...table(
        [
          ["buffer row", ""],
          ["s\u2081", "s"],
          ["a", "a"],
          ["r", "r"],
          ["d", "d"],
        ],
        (j) => [
          group(B.rows[j]),
          show(at(B.state, stateSize, j)),
          show(at(B.action, A, j)),
          show(B.reward[j]),
          B.terminated[j],
        ],
      ),
    }),
    5: () => ({
      shapes: [["next_action", `[1, ${b}, ${A}]`]],
      ...table(
        [
          ["s′\u2081", "s2"],
          [stateSize > 1 ? "s′\u2082" : "", "s2"],
          ["a′", "a2"],
        ],
        (j) => [
          show(at(B.next_state, stateSize, j)),
          stateSize > 1 ? show(B.next_state[j * stateSize + 1]) : "",
          show(at(R.next_action, A, j), 4),
        ],
      ),
    }),
    6: () => ({
      shapes: [["smoothed_action", `[1, ${b}, ${A}]`]],
      ...table(
        [
          ["a′", "a2"],
          ["noise", "sigma"],
          ["clipped", "clip"],
          ["ã", "smooth"],
        ],
        (j) => [
          show(at(R.next_action, A, j)),
          show(at(R.raw, A, j)),
          show(at(R.blur, A, j)),
          show(at(R.smoothed, A, j)),
        ],
      ),
      sums: [
        ["largest clipped noise", Math.max(...R.blur.map(Math.abs)), 3],
        ["lowest, highest ã", [Math.min(...R.smoothed), Math.max(...R.smoothed)], 3],
      ],
    }),
    7: () => ({
      shapes: [["target_q_values", `[2, 1, ${b}]`]],
      ...table(
        [
          ["ã", "smooth"],
          ["Q1′", "q1t"],
          ["Q2′", "q2t"],
        ],
        (j) => [show(at(R.smoothed, A, j)), show(R.target_q_values[0][j]), show(R.target_q_values[1][j])],
      ),
    }),
    8: () => ({
      shapes: [["next_q", `[1, ${b}]`]],
      ...table(
        [
          ["Q1′", "q1t"],
          ["Q2′", "q2t"],
          ["kept", "min"],
        ],
        (j) => [show(R.target_q_values[0][j]), show(R.target_q_values[1][j]), show(R.next_q[j])],
      ),
      sums: [
        ["mean of the kept Q-values", mean(R.next_q), 3],
        ...(facts.truth ? [["minus exact, mean of the batch", truthGap(R), 3]] : []),
      ],
    }),
    9: () => ({
      shapes: [["target_q (y)", `[1, ${b}]`]],
      ...table(
        [
          ["r", "r"],
          ["d", "d"],
          ["min", "min"],
          ["y", "y"],
        ],
        (j) => [show(B.reward[j]), R.ended[j], show(R.next_q[j]), show(R.y[j])],
      ),
    }),
    10: () => ({
      shapes: [["q_values", `[2, 1, ${b}]`]],
      ...table(
        [
          ["a", "a"],
          ["Q1", "q1"],
          ["Q2", "q2"],
          ["y", "y"],
        ],
        (j) => [show(at(R.asked, A, j)), show(R.q[0][j]), show(R.q[1][j]), show(R.y[j])],
      ),
    }),
    11: () => ({
      shapes: [["loss", "[1]"]],
      ...table(
        [
          ["Q1 − y", "q1"],
          ["squared", "loss"],
          ["Q2 − y", "q2"],
          ["squared", "loss"],
        ],
        (j) => [
          show(R.q[0][j] - R.y[j]),
          show((R.q[0][j] - R.y[j]) ** 2),
          show(R.q[1][j] - R.y[j]),
          show((R.q[1][j] - R.y[j]) ** 2),
        ],
      ),
      sums: [
        ["MSE 1", R.losses[0], 4],
        ["MSE 2", R.losses[1], 4],
        [replaced(11) ? `loss by ${replaced(11).function}` : "loss", R.loss, 4],
      ],
    }),
    12: () => ({
      shapes: [["gradient", `[2, 1, ${count_(R.critics[0])}]`]],
      sums: [
        ...(R.lossesAfter
          ? [
              ["loss of critic 1, before and after", [R.losses[0], R.lossesAfter[0]], 4],
              ["loss of critic 2, before and after", [R.losses[1], R.lossesAfter[1]], 4],
            ]
          : []),
        ...moves,
        ["norm of the gradient, critic 1", Math.hypot(...R.criticGradients[0]), 3],
        ["norm of the gradient, critic 2", Math.hypot(...R.criticGradients[1]), 3],
      ],
    }),
    13: () => ({
      shapes: [
        ["gradient", `[1, ${count_(R.actor)}]`],
        ["loss", "[1]"],
      ],
      ...(R.slope && R.turn
        ? table(
            [
              ["π(s) before", "a"],
              ["dQ1/da", "q1"],
              ["π(s) after", "a"],
            ],
            (j) => [show(at(R.policy, A, j), 4), show(at(R.slope, A, j)), show(at(R.policyAfter, A, j), 4)],
          )
        : {}),
      sums: R.turn
        ? [
            ["loss (minus mean Q1)", R.actorLoss, 5],
            ...(R.rise
              ? [
                  ["mean Q1 before", R.rise[0], 5],
                  ["mean Q1 after", R.rise[1], 5],
                ]
              : []),
            ["largest move, actor", change(R.actor, R.actorAfter), 6],
            ["largest move, critics", still ? still[0] : 0, 6],
          ]
        : [["largest move, actor", change(R.actor, R.actorAfter), 6]],
    }),
    14: () => ({
      shapes: [["actor_target.parameters", `[1, ${count_(R.actor)}]`]],
      sums: [
        ["share τ", R.tau, 4],
        ["largest distance", change(R.actorTarget, R.actorAfter), 5],
        ["largest move", change(R.actorTarget, R.actorTargetAfter), 6],
      ],
    }),
    15: () => ({
      shapes: [["critics_target.parameters", `[2, 1, ${count_(R.critics[0])}]`]],
      sums: [
        ["share τ", R.tau, 4],
        [
          "largest distance",
          Math.max(change(R.targetsMoved[0], R.criticsAfter[0]), change(R.targetsMoved[1], R.criticsAfter[1])),
          5,
        ],
        [
          "largest move",
          Math.max(change(R.targetsMoved[0], R.targetsAfter[0]), change(R.targetsMoved[1], R.targetsAfter[1])),
          6,
        ],
      ],
    }),
  }[S.step]();
  return V;
}
function valuesHtml(S, R) {
  const V = values(S, R);
  let out = "<h3>Values</h3>";
  out += `<div class="shapes">${V.shapes.map(([name, shape]) => `${esc(name)} ${shape} float32`).join("<br>")}${S.step > 3 ? "<br>first 1: one seed; critics: 2 first" : ""}</div>`;
  if (V.rows)
    out += `<div class="scroll"><table><thead><tr><th>row</th>${V.heads.map(([h, s]) => `<th data-sym="${s}">${h}</th>`).join("")}</tr></thead><tbody>${V.rows.map((r, n) => `<tr class="${n === S.pokes.row ? "chosen" : ""}">${r.map((c, i) => `<td${i ? ` data-sym="${V.heads[i - 1][1]}"` : ""}>${c}</td>`).join("")}</tr>`).join("")}</tbody></table></div>`;
  if (V.sums)
    out += `<div class="sums">${V.sums.map(([label, v, digits]) => `<div><span>${esc(label)}</span><b>${Array.isArray(v) ? v.map((x) => show(x, digits)).join(", ") : digits === 0 ? group(v) : show(v, digits)}</b></div>`).join("")}</div>`;
  if (facts.truth && [7, 8, 10, 12, 13].includes(S.step)) {
    const j = R.shown[S.pokes.row],
      next = S.step < 10,
      state = vectorAt(next ? R.batch.next_state : R.batch.state, j, stateSize);
    const a = S.step < 10 ? clamped(R.smoothed[j], 0) : S.step === 13 ? R.policy[j] : R.batch.action[j];
    const own = next
      ? Math.min(R.target_q_values[0][j], R.target_q_values[1][j])
      : S.step === 13
        ? R.ownScores[0][j]
        : R.q[0][j];
    out += `<div class="sums"><div><span>TD3 on this row</span><b>${show(own)}</b></div><div><span>DDPG, same state and action</span><b>${show(curveOf(array(`ddpg_critic.${R.u >> 1}`), state, new Float64Array(1), [a])[0])}</b></div><div><span>exact</span><b>${show(exactQ(state, a))}</b></div></div>`;
  }
  return out;
}

// Strips over training: the learning curve, and how far both learners are from the exact Q. The slider below them has
// the same scale: its thumb stands under the mark.
const THUMB = 8;
const lastUpdate = facts.truth ? array("curve.env_steps").at(-1) - facts.settings.learning_starts : facts.updates[last],
  firstUpdate = facts.truth ? 0 : facts.updates[0] - 1;
function strip(series, caption, here, zero, W) {
  const steps_ = array("curve.env_steps"),
    H = 92,
    left = 34,
    right_ = 46,
    low0 = Math.min(...series.flatMap((s) => s.values)),
    high0 = Math.max(...series.flatMap((s) => s.values));
  const clipLow = facts.truth && !zero ? Math.max(low0, -30) : low0,
    pad = (high0 - clipLow) * 0.1 || 1,
    low = clipLow - pad,
    high = high0 + pad;
  const shift = facts.truth ? facts.settings.learning_starts : 0,
    from = facts.truth ? 0 : steps_[0],
    to = facts.truth ? lastUpdate : Math.max(steps_[0] + 1, steps_.at(-1)),
    X = (v) => left + THUMB + ((v - from) / (to - from)) * (W - left - right_ - 2 * THUMB),
    Y = (v) => Math.min(H - 20, H - 22 - ((v - low) / (high - low)) * (H - 30)),
    ticks = nice(low, high, 3);
  let out = rect(left, 0, W - left - right_, H - 18, "panel");
  ticks.ticks.forEach((v) => {
    if (Y(v) > 8 && Y(v) < H - 20)
      out += line(left, Y(v), W - right_, Y(v), "grid") + text(left - 4, Y(v) + 4, show(v, ticks.digits), "soft xs end");
  });
  const xt = nice(from, to, W < 380 ? 3 : 5);
  xt.ticks.forEach((v) => {
    if (X(v) < W - right_ - 14) out += text(X(v), H - 4, group(v), "soft xs mid");
  });
  if (zero !== undefined) out += line(left, Y(zero), W - right_, Y(zero), "exact stroke");
  series.forEach((s) => {
    out += path(points(Array.from(s.values, (v, j) => [X(steps_[j] - shift), Y(v)])), `${s.cls} stroke w2`);
  });
  if (facts.truth)
    facts.updates.forEach((n, u) => {
      if (u % 2) out += marks.diamond(X(n), H - 24, 4, "ink fill edge");
    });
  const labels = series.map((s) => ({ y: Y(s.values.at(-1)), text: s.label, cls: `${s.cls}-ink b` }));
  if (zero !== undefined) labels.push({ y: Y(zero), text: "exact", cls: "" });
  if (facts.truth) out += line(X(here), 2, X(here), H - 20, "ink stroke w2");
  return `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="${esc(caption)}"><title>${esc(caption)}</title>${out}${stacked(labels, W - right_ + 4, 14, 8, H - 26)}</svg>`;
}
function drawStrips(S) {
  const list = (name) => Array.from(array(`curve.${name}`)),
    here = facts.updates[S.u];
  const learning = [{ values: list("td3_return"), cls: "c1", label: "TD3" }];
  if (facts.truth) learning.push({ values: list("ddpg_return"), cls: "ddpg", label: "DDPG" });
  $("learn-caption").textContent = facts.truth
    ? `Discounted return (best possible ${show(facts.optimum, 1)}) over updates; ◆ a recorded update`
    : `Return of the run's evaluations, to ${group(array("curve.env_steps").at(-1))} env steps`;
  put("learning", strip(learning, "Learning curve", here, undefined, $("learning").clientWidth || 400));
  if (facts.truth) {
    const gap = (who) => list(`${who}_q`).map((q, j) => q - list(`${who}_exact`)[j]);
    const td3 = gap("td3"),
      ddpg = gap("ddpg"),
      near = nearest(here + facts.settings.learning_starts);
    $("truth-caption").textContent =
      `Predicted Q minus exact Q (200 starts): TD3 ${signed(td3[near])}, DDPG ${signed(ddpg[near])}`;
    put(
      "truth-strip",
      strip(
        [
          { values: td3, cls: "c1", label: "TD3" },
          { values: ddpg, cls: "ddpg", label: "DDPG" },
        ],
        "How far the learners' Q is from the exact Q",
        here,
        0,
        $("truth-strip").clientWidth || 400,
      ),
    );
  } else $("truth-strip").closest("figure").hidden = true;
}
const signed = (v) => (v > 0 ? "+" : "") + show(v, 1);
const nearest = (step_) => {
  const all = array("curve.env_steps");
  let best = 0;
  all.forEach((v, j) => {
    if (Math.abs(v - step_) < Math.abs(all[best] - step_)) best = j;
  });
  return best;
};
const nearestUpdate = (n) =>
  facts.updates.reduce((best, v, u) => (Math.abs(v - n) < Math.abs(facts.updates[best] - n) ? u : best), 0);

function pokesHtml(S) {
  const lesson = lessons.steps[S.step - 1],
    k = S.pokes,
    usable = (name) =>
      facts.replaced
        ? name === "magnify"
        : facts.live || !["seed", "capacity", "low", "high", "rate", "delay"].includes(name);
  const row = () =>
    `<div class="poke"><span>row</span><div class="choices">${facts.shown[0].map((_, j) => `<button data-set="row" data-value="${j}" aria-pressed="${k.row === j}">${j + 1}</button>`).join("")}</div></div>`;
  const slider = ([, name, low, high, step_, label]) => {
    const own =
      name === "aim"
        ? { low: facts.low[0], high: facts.high[0] }
        : name === "low"
          ? { low: facts.low[0], high: facts.low[0] * 0.1 }
          : name === "high"
            ? { low: facts.high[0] * 0.1, high: facts.high[0] }
            : { low, high: name === "capacity" ? Math.max(...facts.filled, facts.truth ? high : 0) : high };
    const fine = name === "aim" || name === "low" || name === "high" ? (own.high - own.low) / 100 : step_,
      value = k[name] ?? run(S.u, k).smoothed[facts.shown[S.u][k.row] * actionSize];
    return `<label class="poke"><span>${esc(label)}</span><input type="range" data-slide="${name}" min="${own.low}" max="${own.high}" step="${Math.abs(fine)}" value="${value}"><output>${name === "capacity" ? group(value) : name === "rate" || name === "seed" ? value || (name === "seed" ? "own" : 0) : show(value, name === "tau" ? 3 : 2)}</output></label>`;
  };
  const choice = ([, name, options, label]) =>
    `<div class="poke"><span>${esc(label)}</span><div class="choices">${[...new Set([...options, POKES[name]])]
      .sort((a, b) => a - b)
      .map((v) => `<button data-set="${name}" data-value="${v}" aria-pressed="${k[name] === v}">${v}</button>`)
      .join("")}</div></div>`;
  const toggle = ([, name, label]) =>
    `<div class="poke"><span>${esc(label)}</span><div class="choices"><button data-flip="${name}" aria-pressed="${k[name]}">${k[name] ? "on" : "off"}</button></div></div>`;
  let out =
    `<h3>${facts.replaced ? "Look at" : "Change it"}</h3>` +
    lesson.pokes
      .filter((p) => p[0] === "row" || usable(p[1]))
      .map((p) => ({ row, slider, choice, toggle })[p[0]](p))
      .join("");
  if (facts.truth && [7, 8, 10, 12, 13].includes(S.step))
    out += `<div class="poke"><span>compare</span><div class="choices">${["none", "exact", "ddpg", "both"].map((v) => `<button data-set="compare" data-value="${v}" aria-pressed="${k.compare === v}">${{ none: "none", exact: "exact", ddpg: "DDPG", both: "both" }[v]}</button>`).join("")}</div></div>`;
  const able = (facts.replaced ? [] : lesson.breaks).filter(
    ([id]) =>
      facts.live ||
      ![
        "oldest",
        "newest",
        "symmetric",
        "twins",
        "ownaction",
        "leak",
        "onecritic",
        "both",
        "least",
        "stored",
        "everyupdate",
        "hardcopy",
      ].includes(id),
  );
  if (able.length)
    out += `<h3>Break it</h3><div class="breaks">${able.map(([id, label]) => `<button data-break="${id}" aria-pressed="${broken(k, id)}">${esc(label)}</button>`).join("")}</div>`;
  const raced = lesson.breaks.map(([id]) => id).find((id) => id in lessons.races && facts.race);
  const other = Object.keys(lessons.races).filter((id) => lessons.races[id].step === S.step && facts.race);
  if (raced || other.length)
    out += `<p class="further"><a href="#race" data-race-link="${raced || other[0]}">Train it broken for 5,000 updates</a></p>`;
  if (S.step === 8 && facts.truth) out += '<p class="further"><a href="#toy" data-toy-link="1">Why two critics and not ten?</a></p>';
  if (facts.replaced)
    out += `<p class="shapes">This run replaces a step, which the page cannot compute: it shows what was recorded, and nothing can be changed. Curves are slices along ${esc(facts.action_names[0])}, cells are a sample of the weights.</p>`;
  else if (!facts.live)
    out += `<p class="shapes">These networks are too large to be computed in the page: curves are slices along ${esc(facts.action_names[0])}, cells are a sample of the weights, and steps 12 to 15 show what was recorded.</p>`;
  return out;
}

const coded = (text_) => esc(text_).replace(/`([^`]+)`/g, "<code>$1</code>");

// Rendering: everything on the screen follows from the state.
let sliding = null,
  shownStep = null,
  state = parse(location.hash),
  shownParts = {},
  playing = null;
const put = (id, html) => {
  if (shownParts[id] !== html) {
    shownParts[id] = html;
    $(id).innerHTML = html;
  }
};
const changed = (S) =>
  Object.keys(POKES).filter(
    (name) =>
      !["row", "magnify", "compare"].includes(name) && JSON.stringify(S.pokes[name]) !== JSON.stringify(POKES[name]),
  );
const stageWidth = () => ($("stage").clientWidth < narrowAt ? 360 : 640);

const GROUPS = [
  ["before training", 1, 3],
  ["one update", 4, 12],
  ["every second update", 13, 15],
];
// The fifteen buttons are made once and then only marked, so that focus stays where it is.
$("steps").innerHTML = GROUPS.map(
  ([label, from, to]) =>
    `<div><span>${label}</span>${Array.from({ length: to - from + 1 }, (_, j) => from + j)
      .map((n) => `<button data-step="${n}" title="${esc(lessons.steps[n - 1].title)}" aria-label="Step ${n}: ${esc(lessons.steps[n - 1].title)}">${n}</button>`)
      .join("")}</div>`,
).join("");
const stepButtons = [...document.querySelectorAll("nav [data-step]")];
const NAMES = {
  capacity: "capacity",
  seed: "seed",
  low: "lowest action",
  high: "highest action",
  sigma: "noise σ",
  clip: "bound c",
  aim: "ã of this row",
  gamma: "γ",
  dead: "this row ended",
  half: "half the squared error",
  rate: "learning rate",
  delay: "policy delay",
  tau: "τ",
  breaks: "",
};
function render(push = true) {
  const S = seen(state),
    R = run([2, 3].includes(S.step) ? 0 : S.u, S.pokes),
    lesson = lessons.steps[S.step - 1];
  stepButtons.forEach((button, j) => {
    if (j + 1 === S.step) button.setAttribute("aria-current", "step");
    else button.removeAttribute("aria-current");
    button.classList.toggle("replaced", Boolean(replaced(j + 1)));
    button.classList.toggle("changed", lessons.steps[j].breaks.some((b) => broken(S.pokes, b[0])));
  });
  if (shownStep !== S.step) {
    shownStep = S.step;
    const now = stepButtons[S.step - 1];
    $("steps").scrollLeft = now.offsetLeft - $("steps").clientWidth / 2;
    $("said").textContent = `Step ${S.step}: ${lesson.title}`;
  }
  put("title", `<b>${S.step}</b>${esc(lesson.title)}`);
  put("formula", lesson.formula);
  const other = replaced(S.step);
  put(
    "prose",
    `${other ? `<p class="replaced">This run has <code>${esc(other.function)}</code> in the place of this step. Code and numbers are those of <code>${esc(other.function)}</code>; formula, text and drawing explain <code>${esc(other.step)}</code>, TD3's own step.</p>` : ""}<dl><dt>What</dt><dd>${coded(lesson.what)}</dd><dt>Why</dt><dd>${coded(lesson.why)}</dd><dt>If you leave it out</dt><dd>${coded(lesson.without)}</dd><dt>Common misreading</dt><dd>${coded(lesson.misreading)}</dd></dl>`,
  );
  document.querySelectorAll(".code").forEach((f) => {
    f.hidden = f.id !== `code-${S.step}`;
  });
  const { map, drawing } = parts(S, stageWidth());
  put("stage", `<div id="map">${svgOf(map, "", "", "map")}</div><div id="drawing">${svgOf(drawing)}</div>`);
  $("caption").hidden = state.film === null;
  $("caption").textContent = S.caption || "";
  const said = banner(S, R),
    undo = changed(S);
  put(
    "banner",
    said || undo.length
      ? `<span>${said || `Changed: ${undo.map((n) => NAMES[n]).filter(Boolean).join(", ")}.`}</span><button data-undo="1">Undo</button>`
      : "",
  );
  $("banner").hidden = !said && !undo.length;
  $("banner").classList.toggle("broken", Boolean(said));
  $("banner").dataset.broken = S.pokes.breaks.join(",");
  put("values", valuesHtml(S, R));
  put("predict", state.film === null ? predictHtml(S, R) : "");
  $("predict").hidden = !$("predict").innerHTML;
  if (!document.querySelector(`[data-slide="${sliding}"]`)) put("pokes", pokesHtml(S));
  drawStrips(S);
  $("training").value = facts.updates[S.u];
  $("training-label").textContent =
    S.step === 2 || S.step === 3
      ? facts.loaded
        ? "the networks as they were saved"
        : "before the first update"
      : `update ${group(facts.updates[S.u])}${S.step > 3 ? (R.turn ? ": the actor moves" : ": the actor waits") : ""}`;
  $("inside").value = state.film === null ? S.step + S.t * 0.999 : 1 + state.film * 14.998;
  $("inside-label").textContent =
    state.film === null
      ? `step ${S.step}, ${Math.round(S.t * 100)} %`
      : `film, ${Math.round(state.film * filmLength)} of ${Math.round(filmLength)} s`;
  $("play").innerHTML = playing ? "&#10074;&#10074; Pause" : "&#9654;&#xFE0E; Play";
  $("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  $("film").setAttribute("aria-pressed", state.film !== null);
  if (facts.truth) {
    const W = $("toy-stage").clientWidth < narrowAt ? 360 : 640;
    put("toy-stage", svgOf(toyDraw(state.toy, state.draw, W), "", "", "toy"));
    $("toy-n").value = state.toy;
    $("toy-out").textContent = state.toy;
  }
  raceRender();
  document.title = `${S.step} ${lesson.title} · TD3 in fifteen steps`;
  if (push) history.replaceState(null, "", address(state));
}
function change(edit, push = true) {
  if (state.film !== null) {
    const S = seen(state);
    state = { ...state, film: null, u: S.u, step: S.step, t: S.t };
  }
  edit(state);
  render(push);
}
function go(step_, t = null) {
  stop();
  change((S) => {
    S.step = Math.max(1, Math.min(15, step_));
    // A step that asks for a prediction begins before its result, and waits.
    S.t = t ?? (calm && !asks(S) ? 1 : 0);
  });
  if (t === null && !calm && !asks(state)) play();
}
const asks = (S) => Boolean(predictions[S.step]) && !answers.has(predictionKey(S)) && !changed(S).length;

// Playing: the clock only moves t; when it stops, the address says where.
const stepSeconds = 3.4;
function play(through = false) {
  let before = performance.now();
  playing = { through, id: 0 };
  const tick = (now) => {
    const passed = Math.min(0.1, (now - before) / 1000);
    before = now;
    if (state.film !== null) {
      state.film = Math.min(1, state.film + passed / filmLength);
      if (state.film >= 1) return stop();
    } else {
      state.t = Math.min(1, state.t + passed / stepSeconds);
      if (state.t >= 1 && (!playing.through || state.step === 15)) return stop();
      if (state.t >= 1) {
        state.step += 1;
        state.t = 0;
      }
    }
    render(false);
    playing.id = requestAnimationFrame(tick);
  };
  playing.id = requestAnimationFrame(tick);
  render(false);
}
function stop() {
  if (playing) cancelAnimationFrame(playing.id);
  playing = null;
  render();
}
function toggle() {
  if (playing) return stop();
  if (state.film !== null) {
    if (state.film >= 1) state.film = 0;
    return play();
  }
  if (state.t >= 1) {
    if (state.step < 15) {
      state.step += 1;
    } else {
      state.step = 4;
    }
    state.t = 0;
  }
  play(true);
}
function startFilm() {
  stop();
  if (state.film !== null) return change(() => {});
  state.film = 0;
  if (calm) render();
  else play();
}

document.addEventListener("click", (event) => {
  const hit = event.target.closest("[data-step],[data-set],[data-flip],[data-break],[data-undo],[data-predict],[data-race-link],[data-toy-link],[data-race],[data-net]");
  if (!hit) return;
  const d = hit.dataset;
  if (d.step) return go(+d.step);
  if (d.predict) {
    answers.set(predictionKey(seen(state)), +d.predict);
    if (calm) change((S) => (S.t = 1));
    else {
      change((S) => (S.t = 0));
      play();
    }
    return document.querySelector(`[data-predict="${d.predict}"]`)?.focus();
  }
  if (d.raceLink) {
    event.preventDefault();
    state.race = d.raceLink;
    render();
    return $("race").scrollIntoView({ behavior: calm ? "auto" : "smooth" });
  }
  if (d.toyLink) {
    event.preventDefault();
    return $("toy").scrollIntoView({ behavior: calm ? "auto" : "smooth" });
  }
  if (d.race) {
    state.race = d.race;
    return render();
  }
  if (d.net) return openNetwork(d.net);
  stop();
  change((S) => {
    if (d.undo) {
      S.pokes = { ...POKES, row: S.pokes.row, compare: S.pokes.compare, breaks: [] };
      return;
    }
    if (d.set) {
      S.pokes[d.set] = d.set === "compare" ? d.value : +d.value;
      if (d.set === "row") S.pokes.aim = null;
    }
    if (d.flip) S.pokes[d.flip] = !S.pokes[d.flip];
    if (d.break)
      S.pokes.breaks = (
        broken(S.pokes, d.break) ? S.pokes.breaks.filter((b) => b !== d.break) : [...S.pokes.breaks, d.break]
      ).sort();
    S.t = 1;
  });
  const again = ["set", "flip", "break"].find((n) => d[n]);
  if (again)
    document.querySelector(`[data-${again}="${d[again]}"]${d.value ? `[data-value="${d.value}"]` : ""}`)?.focus();
});
document.addEventListener("input", (event) => {
  const {
      id,
      dataset: { slide },
      value: written,
      nextElementSibling: output,
    } = event.target,
    value = +written;
  sliding = slide || id;
  if (playing) stop();
  if (slide) {
    change((S) => {
      S.pokes[slide] = value;
      S.t = 1;
    }, false);
    output.textContent =
      slide === "capacity"
        ? group(value)
        : show(value, slide === "tau" ? 3 : slide === "rate" || slide === "seed" ? 0 : 2);
  } else if (id === "toy-n") {
    state.toy = value;
    render(false);
  } else if (id === "training")
    change((S) => {
      S.u = nearestUpdate(value);
    }, false);
  else if (state.film !== null) {
    state.film = clip01((value - 1) / 14.998);
    render(false);
  } else
    change((S) => {
      S.step = Math.min(15, Math.floor(value));
      S.t = clip01((value - S.step) / 0.999);
    }, false);
});
// While a slider moves the address stands still: browsers refuse to have it changed too often.
document.addEventListener("change", (event) => {
  if (event.target.type !== "range") return;
  const { slide } = event.target.dataset;
  sliding = null;
  render();
  // The controls were drawn anew: keyboard focus goes back to where it was.
  if (slide) document.querySelector(`[data-slide="${slide}"]`)?.focus();
});
document.querySelector(".strips").addEventListener("click", (event) => {
  const svg = event.target.closest("svg");
  if (!svg || !facts.truth) return;
  const box = svg.getBoundingClientRect(),
    share = (event.clientX - box.left - 34 - THUMB) / (box.width - 34 - 46 - 2 * THUMB),
    even = facts.updates.map((n, u) => u).filter((u) => u % 2 === state.u % 2),
    at = share * lastUpdate;
  stop();
  change((S) => {
    S.u = even.reduce((best, u) => (Math.abs(facts.updates[u] - at) < Math.abs(facts.updates[best] - at) ? u : best));
  });
});
$("back").onclick = () => go(state.step - 1, 1);
$("forward").onclick = () => go(state.step + 1);
$("play").onclick = toggle;
$("film").onclick = startFilm;
$("race-go").onclick = raceStart;
$("toy-draw").onclick = () => {
  state.draw = (state.draw + 1) % 1000;
  render();
};
// Keys work only while the drawing, the player or the row of steps has focus: elsewhere they scroll the page as usual.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !event.target.closest?.("#stage, .player, nav")) return;
  const inRange = event.target.matches?.("input[type=range]"),
    another = (by) => {
      stop();
      change((S) => {
        S.u = Math.max(0, Math.min(last, S.u + by));
      });
    };
  const act_ = {
    ArrowRight: () => go(seen(state).step + 1),
    ArrowLeft: () => go(seen(state).step - 1, 1),
    PageUp: () => another(1),
    PageDown: () => another(-1),
    " ": toggle,
    f: startFilm,
    0: () => {
      stop();
      change((S) => {
        S.pokes = { ...POKES, breaks: [] };
      });
    },
  }[event.key];
  if (!act_ || (inRange && /^(Arrow|Page)/.test(event.key))) return;
  if (event.key === " " && event.target.matches?.("button")) return;
  event.preventDefault();
  act_();
  if (event.target.matches?.("nav button") && event.key.startsWith("Arrow")) stepButtons[state.step - 1].focus();
});
// A network's weights, large: before and after this update.
function openNetwork(name) {
  const S = seen(state),
    R = run([2, 3].includes(S.step) ? 0 : S.u, S.pokes),
    [label, color, kind] = NETWORKS[name],
    net = name.startsWith("actor") ? "actor" : "critic",
    before = { actor: R.actor, critic1: R.critics[0], critic2: R.critics[1], actorTarget: R.actorTarget, critic1Target: R.targets[0], critic2Target: R.targets[1] }[name],
    after = { actor: R.actorAfter, critic1: R.criticsAfter[0], critic2: R.criticsAfter[1], actorTarget: R.actorTargetAfter, critic1Target: R.targetsAfter[0], critic2Target: R.targetsAfter[1] }[name],
    draw = (p, y) => {
      const box = { x: 2, y, w: 536, h: 172 },
        { plan, cell } = planFor(facts.drawn_sizes[net], box, 10, 20);
      return rect(box.x, box.y, box.w, box.h, `frame ${color} ${kind}`, 'rx="5"') + cellPaths(plan, cell, (at) => p[at], scaleOf(before), ["pos", "neg"]);
    };
  let most = 0;
  before.forEach((v, j) => {
    most = Math.max(most, Math.abs(after[j] - v));
  });
  $("network-title").textContent = `${label}, update ${group(R.number)}`;
  $("network-body").innerHTML =
    svgOf({ width: 540, height: 412, name: `Weights of the ${label}`, description: "Above before the update, below after it: one cell per weight, layer by layer, biases as single columns.", inside: text(4, 14, "before", "soft s") + draw(before, 20) + text(4, 216, "after", "soft s") + draw(after, 222) }, "", "", "net") +
    `<p>Layers ${facts.sizes[net].join(" → ")}, ${group(before.length)} weights and biases${facts.live ? "" : " shown"}; the largest change in this update is ${show(most, 6)}.</p>`;
  $("network").showModal();
}
// On paper: all fifteen steps, each with its drawing.
addEventListener("beforeprint", () => {
  const S = { ...fresh(), u: start };
  $("paper").innerHTML = lessons.steps
    .map((lesson, j) => {
      const scene = stage({ ...S, step: j + 1, t: { 6: 0.5, 9: 0.74, 11: 0.66 }[j + 1] ?? 1 }, 640, {});
      return `<article><h2><b>${j + 1}</b>${esc(lesson.title)}</h2><div class="formula">${lesson.formula}</div>${svgOf(scene, "", "", `paper-${j}`)}<p><b>What.</b> ${coded(lesson.what)} <b>Why.</b> ${coded(lesson.why)} <b>If you leave it out.</b> ${coded(lesson.without)} <b>Common misreading.</b> ${coded(lesson.misreading)}</p></article>`;
    })
    .join("");
});
// Hover a symbol: code, drawing, value and formula light up together.
document.addEventListener("pointerover", (event) => {
  const name = event.target.closest?.("[data-sym]")?.dataset.sym;
  document.querySelectorAll(".lit").forEach((e) => e.classList.remove("lit"));
  if (name) document.querySelectorAll(`[data-sym="${name}"]`).forEach((e) => e.classList.add("lit"));
});
addEventListener("hashchange", () => {
  if (playing) {
    cancelAnimationFrame(playing.id);
    playing = null;
  }
  state = parse(location.hash);
  render(false);
});
addEventListener("resize", () => {
  if ($("stage")) {
    render(false);
    taskRender();
  }
});

$("questions").innerHTML = lessons.questions
  .map(
    ([question, answer, moment]) =>
      `<details><summary>${esc(question)}</summary><p>${coded(answer)} <a href="#${esc(moment)}" data-go="1">Show me</a></p></details>`,
  )
  .join("");
document.addEventListener("click", (event) => {
  if (event.target.dataset.go) $("steps").scrollIntoView({ behavior: calm ? "auto" : "smooth" });
});
$("training").min = firstUpdate;
$("training").max = lastUpdate;
if (facts.race)
  $("races").innerHTML = Object.entries(lessons.races)
    .map(([id, { label }]) => `<button data-race="${id}">${esc(label)}</button>`)
    .join("");
else $("race").remove();
if (!facts.truth) $("toy").remove();
taskBegin();
// For tests, docs and film: the same functions that the page itself uses.
window.explain = {
  facts,
  array,
  run,
  POKES,
  parse,
  address,
  makeTrainer,
  filmState,
  raceSetup,
  race,
  toyAverages,
  wholeMap: (width) => {
    const S = { ...fresh(), step: 0, t: 1 },
      R = run(start, S.pokes);
    return {
      width,
      height: MAP_HEIGHT,
      name: "TD3 as one map",
      description:
        "The environment fills the replay buffer; the target networks turn s', r and d into y; the critics are fitted to y; the actor ascends critic 1; the targets follow.",
      inside: drawMap(R, S, 1, width),
    };
  },
  stage: (hash, width, options) => {
    const S = seen(parse(hash));
    return stage(S, width, { ...options, caption: options?.caption ? S.caption || "" : null });
  },
  svg: svgOf,
  compute: (hash) => {
    const S = seen(parse(hash));
    return run(S.u, S.pokes);
  },
  values: (hash) => {
    const S = seen(parse(hash));
    return values(S, run([2, 3].includes(S.step) ? 0 : S.u, S.pokes));
  },
  filmLength,
  svgStyle,
};
// A link to a moment shows that moment: the task above it is for readers who begin at the top.
if (/step=|film=/.test(location.hash)) requestAnimationFrame(() => $("steps").scrollIntoView());
render(false);

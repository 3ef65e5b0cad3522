"use strict";
// The page around the drawings: the state (all of it in the address), the controls, the keys.

const lessons = JSON.parse(document.getElementById("lessons").textContent);
const $ = (id) => document.getElementById(id);
const last = facts.updates.length - 1;
const start = facts.updates.includes(facts.start) ? facts.updates.indexOf(facts.start) : last;
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
const fresh = () => ({ u: start, step: 1, t: 1, film: null, toy: 2, draw: 0, race: "ddpg", screen: 1, pokes: { ...POKES, breaks: [] } });
const NUMBERS = ["row", "capacity", "low", "high", "sigma", "clip", "aim", "gamma", "rate", "delay", "tau"];
const SWITCHES = ["dead"];
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
  // "puzzle" is the one in which the fewest rows come closer to y.
  if (given.get("update") === "puzzle") S.u = Math.max(0, facts.updates.indexOf(facts.puzzle));
  S.screen = Math.round(number("screen", 1, lessons.screens.length) ?? S.screen);
  S.toy = Math.round(number("toy", 1, 10) ?? S.toy);
  S.draw = Math.round(number("draw", 0, 999) ?? S.draw);
  if (given.get("race") in lessons.races) S.race = given.get("race");
  S.step = Math.round(number("step", facts.truth ? 0 : 1, 15) ?? S.step);
  S.t = number("t", 0, 1) ?? (given.has("step") ? 1 : S.t);
  S.film = number("film", 0, 1);
  const limits = {
    row: [0, 7],
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
  ["row", "delay", "capacity"].forEach((name) => {
    S.pokes[name] = Math.round(S.pokes[name]);
  });

  SWITCHES.forEach((name) => {
    if (given.has(name)) S.pokes[name] = given.get(name) === "1";
  });
  if (["earned", "best", "both", "none"].includes(given.get("compare"))) S.pokes.compare = given.get("compare");
  S.pokes.breaks = (given.get("break") || "")
    .split(",")
    .filter((b) => KNOWN_BREAKS.includes(b))
    .sort();
  if (facts.replaced) S.pokes = { ...fresh().pokes, row: S.pokes.row };
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
  ["toy", "draw", "race", "screen"].forEach((name) => {
    if (S[name] !== plain_[name]) out.set(name, S[name]);
  });
  return `#${out}`.replaceAll("%2C", ",");
}

// The film: one stretch of the training as a drawing of its own, then a pause in which its parts are named.
const delay = facts.settings.policy_delay;
const filmLength = lessons.film.reduce((sum, shot) => sum + shot[0], 0);
function filmState(share) {
  let left = share * filmLength,
    shot = lessons.film.at(-1),
    inside = 1;
  for (const piece of lessons.film) {
    if (left < piece[0]) {
      shot = piece;
      inside = left / piece[0];
      break;
    }
    left -= piece[0];
  }
  const [, from, to, caption] = shot;
  return { ...fresh(), step: 12, film: share, at: mix(from, to, inside), named: from === to ? inside : 0, caption, pokes: { ...POKES, breaks: [] } };
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
    `the actions of y are the online actor's now: they differ from the target's by up to ${show(Math.max(...Array.from(R.next_target, (v, j) => Math.abs(v - R.next_action[j]))), 3)} here, and change with each of its steps.`,
  noclamp: (R) =>
    `${count(R.smoothed, (v, j) => v < facts.low[0] - 1e-6 || v > facts.high[0] + 1e-6)} of ${batchSize * actionSize} smoothed actions lie outside the range, where no critic has data.`,
  onenoise: (R) => `all ${batchSize} rows move by the same ${show(R.blur[0], 3)}: nothing is averaged out within the batch.`,
  noclip: (R, S) =>
    `${count(R.blur, (v, j) => Math.abs(v) > (S.pokes.clip * (facts.high[j % actionSize] - facts.low[j % actionSize])) / 2 + 1e-9)} of ${batchSize * actionSize} noises exceed c = ${show(S.pokes.clip, 2)} of half the range (at σ = ${show(S.pokes.sigma, 2)}); those rows read Q far from the policy's action.`,
  twonoise: (R) =>
    `in ${count(R.smoothed, (v, j) => Math.abs(v - R.second[j]) > 1e-6)} of ${batchSize * actionSize} places the critics evaluate different actions: their minimum compares nothing.`,
  mean: (R) =>
    `the mean is kept: ${show(mean(R.next_q) - minMean(R), 2)} higher on average than the smaller Q-value in this batch. What that does over a training stands below.`,
  max: (R) =>
    `the larger is kept: ${show(mean(R.next_q) - minMean(R), 2)} higher on average than the smaller Q-value in this batch. What that does over a training stands below.`,
  first: (R) =>
    `critic 1 alone is used, as in DDPG: ${show(mean(R.next_q) - minMean(R), 2)} higher on average than the smaller Q-value in this batch.`,
  nodeath: (R) => {
    const dead = count(R.batch.terminated, (v) => v === 1),
      whole = plain(R),
      j = R.shown.find((place) => R.batch.terminated[place]) ?? 0;
    return dead
      ? `${dead} of ${batchSize} rows terminated, and y adds a future that does not exist: here from ${show(whole.y[j], 1)} to ${show(R.y[j], 1)}. On Rail values are negative, so a fall costs its future on top; where staying alive earns reward, the fall would look harmless.`
      : "this batch holds no termination; in one that does, y would add a future that does not exist.";
  },
  timeout: (R) => {
    const late = count(R.batch.timed_out, (v, j) => v === 1 && R.batch.terminated[j] === 0),
      j = R.shown.find((place) => R.batch.timed_out[place] && !R.batch.terminated[place]);
    return late
      ? `${late} of ${batchSize} rows ended at the time limit, and y treats them as terminations${j === undefined ? "" : `: one goes from ${show(plain(R).y[j], 2)} to ${show(R.y[j], 2)}`}. The future that they drop has a cost on Rail.`
      : "this batch holds no time-out; in one that does, y would drop its future.";
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
  everyupdate: (R, S) =>
    `the targets also move in the updates between: half of a jump is covered after ${halfLife(S.pokes.tau, 1)} updates instead of ${halfLife(S.pokes.tau, S.pokes.delay)}.`,
  hardcopy: () => "with τ = 1 the target networks equal the online networks after every actor update, and y jumps with them.",
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
      shapes: [["buffer.rows", `[${group(f.buffer_size)}, ${2 * facts.sizes.actor[0] + A + 2}]`]],
      sums: [
        ["added", facts.filled[R.u], 0],
        ["kept", Math.min(facts.filled[R.u], S.pokes.capacity), 0],
        ["numbers in a row", 2 * facts.sizes.actor[0] + A + 2, 0],
      ],
    }),
    2: () => ({
      shapes: [
        ["actor.parameters", `[${count_(R.actor)}]`],
        ["actor_target.parameters", `[${count_(R.actor)}]`],
      ],
      sums: [["largest difference of a weight", change(birth().actor, birth().target), 6]],
    }),
    3: () => ({
      shapes: [
        ["critics.parameters", `[2, ${count_(R.critics[0])}]`],
        ["critics_target.parameters", `[2, ${count_(R.critics[0])}]`],
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
        ["state, next_state", `[${b}, ${facts.sizes.actor[0]}]`],
        ["action", `[${b}, ${A}]`],
        ["reward, terminated", `[${b}]`],
      ],
      ...table(
        [["buffer row", ""], ["s\u2081", "s"], ["a", "a"], ["r", "r"], ["d", "d"]],
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
      shapes: [["next_action", `[${b}, ${A}]`]],
      ...table(
        [["s′\u2081", "s2"], [stateSize > 1 ? "s′\u2082" : "", "s2"], ["a′", "a2"]],
        (j) => [
          show(at(B.next_state, stateSize, j)),
          stateSize > 1 ? show(B.next_state[j * stateSize + 1]) : "",
          show(at(R.next_action, A, j), 4),
        ],
      ),
    }),
    6: () => ({
      shapes: [["smoothed_action", `[${b}, ${A}]`]],
      ...table(
        [["a′", "a2"], ["noise", "sigma"], ["clipped", "clip"], ["ã", "smooth"]],
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
      shapes: [["target_q_values", `[2, ${b}]`]],
      ...table(
        [["ã", "smooth"], ["Q1′", "q1t"], ["Q2′", "q2t"]],
        (j) => [show(at(R.smoothed, A, j)), show(R.target_q_values[0][j]), show(R.target_q_values[1][j])],
      ),
    }),
    8: () => ({
      shapes: [["next_q", `[${b}]`]],
      ...table(
        [["Q1′", "q1t"], ["Q2′", "q2t"], ["kept", "min"]],
        (j) => [show(R.target_q_values[0][j]), show(R.target_q_values[1][j]), show(R.next_q[j])],
      ),
      sums: [["mean of the kept Q-values", mean(R.next_q), 3]],
    }),
    9: () => ({
      shapes: [["target_q (y)", `[${b}]`]],
      ...table(
        [["r", "r"], ["d", "d"], ["min", "min"], ["y", "y"]],
        (j) => [show(B.reward[j]), R.ended[j], show(R.next_q[j]), show(R.y[j])],
      ),
    }),
    10: () => ({
      shapes: [["q_values", `[2, ${b}]`]],
      ...table(
        [["a", "a"], ["Q1", "q1"], ["Q2", "q2"], ["y", "y"]],
        (j) => [show(at(R.asked, A, j)), show(R.q[0][j]), show(R.q[1][j]), show(R.y[j])],
      ),
    }),
    11: () => ({
      shapes: [["loss", "[ ]"]],
      ...table(
        [["Q1 − y", "q1"], ["squared", "loss"], ["Q2 − y", "q2"], ["squared", "loss"]],
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
      shapes: [["gradient", `[2, ${count_(R.critics[0])}]`]],
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
        ["gradient", `[${count_(R.actor)}]`],
        ["loss", "[ ]"],
      ],
      ...(R.slope && R.turn
        ? table(
            [["π(s) before", "a"], ["dQ1/da", "q1"], ["π(s) after", "a"]],
            (j) => [show(at(R.policy, A, j), 4), show(at(R.slope, A, j)), show(at(R.policyAfter, A, j), 4)],
          )
        : {}),
      sums: R.turn
        ? [
            ["loss (minus mean Q1)", R.actorLoss, 5],
            ...(R.rise
              ? [["mean Q1 before", R.rise[0], 5], ["mean Q1 after", R.rise[1], 5]]
              : []),
            ["largest move, actor", change(R.actor, R.actorAfter), 6],
            ["largest move, critics", still ? still[0] : 0, 6],
          ]
        : [["largest move, actor", change(R.actor, R.actorAfter), 6]],
    }),
    14: () => ({
      shapes: [["actor_target.parameters", `[${count_(R.actor)}]`]],
      sums: [
        ["share τ", R.tau, 4],
        ["largest distance", change(R.actorTarget, R.actorAfter), 5],
        ["largest move", change(R.actorTarget, R.actorTargetAfter), 6],
      ],
    }),
    15: () => ({
      shapes: [["critics_target.parameters", `[2, ${count_(R.critics[0])}]`]],
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
  out += `<div class="shapes">${V.shapes.map(([name, shape]) => `${esc(name)} ${shape}`).join("<br>")}</div>`;
  if (V.rows)
    out += `<div class="scroll"><table><thead><tr><th>row</th>${V.heads.map(([h, s]) => `<th data-sym="${s}">${h}</th>`).join("")}</tr></thead><tbody>${V.rows.map((r, n) => `<tr class="${n === S.pokes.row ? "chosen" : ""}">${r.map((c, i) => `<td${i ? ` data-sym="${V.heads[i - 1][1]}"` : ""}>${asks(S) && ANSWERING[S.step].includes(i) ? "?" : c}</td>`).join("")}</tr>`).join("")}</tbody></table></div>`;
  if (V.sums && !asks(S))
    out += `<div class="sums">${V.sums.map(([label, v, digits]) => `<div><span>${esc(label)}</span><b>${Array.isArray(v) ? v.map((x) => show(x, digits)).join(", ") : digits === 0 ? group(v) : show(v, digits)}</b></div>`).join("")}</div>`;
  if (facts.truth && COMPARED.includes(S.step) && !asks(S)) {
    const j = R.shown[S.pokes.row],
      next = S.step < 10,
      state = vectorAt(next ? R.batch.next_state : R.batch.state, j, stateSize),
      a = next ? clamped(R.smoothed[j], 0) : S.step === 13 ? R.policy[j] : R.batch.action[j],
      own = next ? R.next_q[j] : S.step === 13 ? R.ownScores[0][j] : R.q[0][j];
    out += `<div class="sums"><div><span>predicted on this row</span><b>${show(own)}</b></div><div><span>earned by the ${next ? "target " : ""}actor from there</span><b>${show(earnedQ(next ? R.actorTarget : R.actor, state, [a])[0])}</b></div><div><span>best possible, Q*</span><b>${show(bestQ(state, a))}</b></div></div>`;
  }
  return out;
}
const COMPARED = [7, 8, 10, 12, 13];
// Until a prediction is made, the columns that would answer it stay covered.
const ANSWERING = { 6: [3, 4], 8: [3], 9: [4], 13: [2, 3] };

const firstUpdate = facts.truth ? 0 : facts.updates[0] - 1,
  lastUpdate = facts.truth ? facts.race.updates : facts.updates[last];
const nearestUpdate = (n) =>
  facts.updates.reduce((best, v, u) => (Math.abs(v - n) < Math.abs(facts.updates[best] - n) ? u : best), 0);

function pokesHtml(S) {
  const lesson = lessons.steps[S.step - 1],
    k = S.pokes,
    usable = (name) =>
      !facts.replaced && (facts.live || !["capacity", "low", "high", "rate", "delay"].includes(name));
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
    return `<label class="poke"><span>${esc(label)}</span><input type="range" data-slide="${name}" min="${own.low}" max="${own.high}" step="${Math.abs(fine)}" value="${value}"><output>${name === "capacity" ? group(value) : name === "rate" ? value : show(value, name === "tau" ? 3 : 2)}</output></label>`;
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
  if (facts.truth && COMPARED.includes(S.step))
    out += `<div class="poke"><span>compare</span><div class="choices">${["none", "earned", "best", "both"].map((v) => `<button data-set="compare" data-value="${v}" aria-pressed="${k.compare === v}">${v === "best" ? "best, Q*" : v}</button>`).join("")}</div></div>`;
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
    out += `<p class="further"><a href="#race" data-race-link="${raced || other[0]}">What it does over a whole training</a></p>`;
  if (facts.replaced)
    out += `<p class="shapes">This run replaces a step, which the page cannot compute: it shows what was recorded, and nothing can be changed. Curves are slices along ${esc(facts.action_names[0])}, the numbers of steps 12 to 15 are of a sample of the weights.</p>`;
  else if (!facts.live)
    out += `<p class="shapes">These networks are too large to be computed in the page: curves are slices along ${esc(facts.action_names[0])}, and steps 12 to 15 show what was recorded, of a sample of the weights.</p>`;
  return out;
}

const ticked = (html) => html.replace(/`([^`]+)`/g, "<code>$1</code>");
const coded = (text_) => ticked(esc(text_));

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
      !["row", "compare"].includes(name) && JSON.stringify(S.pokes[name]) !== JSON.stringify(POKES[name]),
  );
const stageWidth = () => ($("stage").clientWidth < narrowAt ? 360 : 640);

const GROUPS = [
  ...(facts.truth ? [["acting", 0, 0]] : []),
  ["before training", 1, 3],
  ["one update", 4, 12],
  ["every second update", 13, 15],
];
// The fifteen buttons are made once and then only marked, so that focus stays where it is.
$("steps").innerHTML = GROUPS.map(
  ([label, from, to]) =>
    `<div><span>${label}</span>${Array.from({ length: to - from + 1 }, (_, j) => from + j)
      .map((n) => `<button data-step="${n}" title="${esc(titleOf(n))}" aria-label="Step ${n}: ${esc(titleOf(n))}">${n}</button>`)
      .join("")}</div>`,
).join("");
const stepButtons = [...document.querySelectorAll("nav [data-step]")];
const NAMES = {
  capacity: "capacity",
  low: "lowest action",
  high: "highest action",
  sigma: "noise σ",
  clip: "bound c",
  aim: "ã of this row",
  gamma: "γ",
  dead: "this row ended",
  rate: "learning rate",
  delay: "policy delay",
  tau: "τ",
  breaks: "",
};
function render(push = true) {
  const S = seen(state),
    R = run([2, 3].includes(S.step) ? 0 : S.u, S.pokes),
    lesson = S.step ? lessons.steps[S.step - 1] : lessons.acting;
  stepButtons.forEach((button) => {
    const n = +button.dataset.step;
    if (n === S.step) button.setAttribute("aria-current", "step");
    else button.removeAttribute("aria-current");
    button.classList.toggle("replaced", Boolean(replaced(n)));
    button.classList.toggle("changed", n > 0 && lessons.steps[n - 1].breaks.some((b) => broken(S.pokes, b[0])));
  });
  if (shownStep !== S.step) {
    shownStep = S.step;
    const now = stepButtons.find((button) => +button.dataset.step === S.step);
    $("steps").scrollLeft = now.offsetLeft - $("steps").clientWidth / 2;
    $("said").textContent = `Step ${S.step}: ${titleOf(S.step)}`;
  }
  put("title", state.film === null ? `<b>${S.step}</b>${esc(titleOf(S.step))}` : "The film");
  const formula = state.film === null ? (lesson.formula ?? "") : "";
  put("formula", formula);
  $("formula").hidden = !formula;
  const other = replaced(S.step),
    part = (name, html) => (html ? `<dt>${name}</dt><dd>${html}</dd>` : "");
  put(
    "prose",
    state.film !== null ? `<p>${lessons.filmed}</p>` : `${other ? `<p class="replaced">This run has <code>${esc(other.function)}</code> in the place of this step. Code and numbers are those of <code>${esc(other.function)}</code>; formula, text and drawing explain <code>${esc(other.step)}</code>, TD3's own step.</p>` : ""}<dl>${part("What", S.step ? coded(lesson.what) : lesson.what)}${part("Why", S.step ? coded(lesson.why) : lesson.why)}${part("If you leave it out", S.step ? coded(lesson.without) : "")}${part("Common misreading", ticked(lesson.misreading))}${part("Measured", ticked(lesson.measured ?? ""))}</dl>`,
  );
  document.querySelectorAll(".code").forEach((f) => {
    f.hidden = state.film !== null || f.id !== `code-${S.step}`;
  });
  if (state.film === null) {
    const { map, drawing } = parts(S, stageWidth());
    put("stage", `<div id="map">${svgOf(map, "", "", "map")}</div><div id="drawing">${svgOf(drawing)}</div>`);
  } else put("stage", `<div id="drawing">${svgOf(filmDraw({ ...S, caption: undefined }, stageWidth()))}</div>`);
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
  put("values", S.step && state.film === null ? valuesHtml(S, R) : "");
  put("predict", state.film === null ? predictHtml(S, R) : "");
  $("predict").hidden = !$("predict").innerHTML;
  if (!document.querySelector(`[data-slide="${sliding}"]`)) put("pokes", S.step && state.film === null ? pokesHtml(S) : "");
  overRender();
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
  storyRender();
  raceRender();
  document.title = `${S.step} ${titleOf(S.step)} · TD3 in fifteen steps`;
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
    S.step = Math.max(facts.truth ? 0 : 1, Math.min(15, step_));
    // A step that asks for a prediction begins before its result, and waits.
    S.t = t ?? (calm && !asks({ ...S, t: 0 }) ? 1 : 0);
  });
  if (t === null && !calm && !asks(state)) play();
}
// A step asks while it stands before its result; who comes by a link to the result is not asked.
const asks = (S) => Boolean(predictions[S.step]) && S.t < 0.05 && !facts.replaced && !answers.has(predictionKey(S)) && !changed(S).length;

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
  const hit = event.target.closest("[data-step],[data-set],[data-flip],[data-break],[data-undo],[data-predict],[data-race-link],[data-race],[data-net]");
  if (!hit) return;
  const d = hit.dataset;
  if (d.step) return go(+d.step);
  if (d.predict) {
    const S = seen(state),
      R = run(S.u, S.pokes);
    if (!answers.has(predictionKey(S))) {
      score_.asked += 1;
      score_.right += +d.predict === predictions[S.step](R, R.shown[S.pokes.row]).right;
    }
    answers.set(predictionKey(S), +d.predict);
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
    if (d.break) {
      const off = broken(S.pokes, d.break),
        bite = lessons.steps.flatMap((step) => step.breaks).find(([id]) => id === d.break)[2];
      S.pokes.breaks = (off ? S.pokes.breaks.filter((b) => b !== d.break) : [...S.pokes.breaks, d.break]).sort();
      // A press moves to the state in which the fault bites, and away from it again.
      if (facts.truth)
        new URLSearchParams(bite).forEach((value, name) => {
          if (name === "update") S.u = off ? start : start - 1;
          else if (name === "row") S.pokes.row = off ? POKES.row : +value;
          else S.pokes[name] = off ? POKES[name] : +value;
        });
    }
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
        : show(value, slide === "tau" ? 3 : slide === "rate" ? 0 : 2);
  } else if (id === "lesson-code" || event.target.closest("#exercises")) return;
  else if (id === "toy-n") {
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
$("back").onclick = () => go(state.step - 1, 1);
$("forward").onclick = () => go(state.step + 1);
$("play").onclick = toggle;
$("film").onclick = startFilm;
$("race-go").onclick = raceStart;
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
  if (event.target.matches?.("nav button") && event.key.startsWith("Arrow")) stepButtons.find((button) => +button.dataset.step === state.step).focus();
});
// What a network says, large: before and after this update.
function openNetwork(name) {
  if (!facts.live) return;
  const S = seen(state),
    R = run([2, 3].includes(S.step) ? 0 : S.u, S.pokes),
    [label, color, kind] = NETWORKS[name],
    net = name.startsWith("actor") ? "actor" : "critic",
    target = name.endsWith("Target"),
    of = (after) => ({ actor: after ? R.actorAfter : R.actor, actorTarget: after ? R.actorTargetAfter : R.actorTarget, critic1: (after ? R.criticsAfter : R.critics)[0], critic2: (after ? R.criticsAfter : R.critics)[1], critic1Target: (after ? R.targetsAfter : R.targets)[0], critic2Target: (after ? R.targetsAfter : R.targets)[1] }),
    side = 41,
    pictures = [false, true].map((after, j) => {
      const p = of(after)[name],
        own = of(after)[target ? "actorTarget" : "actor"],
        A = plane(44 + j * 262, 30, 200, 200),
        values = saidOver(net, p, own, side);
      return A.svg + nodePicture(net, p, own, 44 + j * 262, 30, 200, 200, side) + rect(44 + j * 262, 30, 200, 200, `frame ${color} ${kind}`) + text(44 + j * 262, 282, `from ${show(Math.min(...values), 3)} to ${show(Math.max(...values), 3)}`, "ink s num") + text(244 + j * 262, 23, after ? "after" : "before", "soft s end");
    });
  $("network-title").textContent = `${label}, update ${group(R.number)}`;
  $("network-body").innerHTML =
    svgOf({ width: 540, height: 296, name: `What the ${label} says`, description: `Before and after the update: ${net === "actor" ? "its action" : "its Q-value of the actor's own action"} in every state.`, inside: pictures.join("") }, "", "", "net") +
    `<p>${net === "actor" ? "The action in every state" : "Q of the actor's own action in every state, from pale (low) to dark (high)"}; layers ${facts.sizes[net].join(" → ")}. In one update hardly anything changes; move through the training to see it change.</p>`;
  $("network").showModal();
}
// On paper: all fifteen steps, each with its drawing.
addEventListener("beforeprint", () => {
  const S = { ...fresh(), u: start };
  $("paper").innerHTML = lessons.steps
    .map((lesson, j) => {
      const scene = stage({ ...S, step: j + 1, t: { 6: 0.5, 9: 0.74, 11: 0.66 }[j + 1] ?? 1 }, 640, {});
      return `<article><h2><b>${j + 1}</b>${esc(lesson.title)}</h2><div class="formula">${lesson.formula}</div>${svgOf(scene, "", "", `paper-${j}`)}<p><b>What.</b> ${coded(lesson.what)} <b>Why.</b> ${coded(lesson.why)} <b>If you leave it out.</b> ${coded(lesson.without)} <b>Common misreading.</b> ${ticked(lesson.misreading)}</p></article>`;
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
  render(false);
  taskRender();
});

$("questions").innerHTML = lessons.questions
  .map(
    ([question, answer, moment]) =>
      `<details><summary>${esc(question)}</summary><p>${ticked(answer)} <a href="#${esc(moment)}" data-go="1">Show me</a></p></details>`,
  )
  .join("");
document.addEventListener("click", (event) => {
  if (event.target.dataset.go) $("steps").scrollIntoView({ behavior: calm ? "auto" : "smooth" });
});
$("shapes").innerHTML =
  "<thead><tr><th>step</th><th>tensor</th><th>shape</th></tr></thead>" +
  lessons.steps
    .flatMap((_, j) => values({ ...fresh(), step: j + 1 }, run(start, POKES)).shapes.map(([name, shape]) => `<tr><td>${j + 1}</td><td>${esc(name)}</td><td>${shape}</td></tr>`))
    .join("");
$("training").min = firstUpdate;
$("training").max = lastUpdate;
if (facts.race)
  $("races").innerHTML = Object.entries(lessons.races)
    .map(([id, { label }]) => `<button data-race="${id}">${esc(label)}</button>`)
    .join("");
else $("race").remove();
storyBegin();
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
  toyErrors,
  checked,
  exercises,
  wholeMap: (width) => {
    const S = { ...fresh(), step: "whole", t: 1 },
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
    if (S.film !== null) return filmDraw(S, width);
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
if (/step=|film=|update=/.test(location.hash)) requestAnimationFrame(() => $("steps").scrollIntoView());
render(false);

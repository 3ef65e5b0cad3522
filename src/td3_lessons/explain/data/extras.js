"use strict";
// What stands around the fifteen steps: the task as a cart to drive, the experiment on the minimum of N critics, TD3
// trained in the page with one part changed, and predictions.

// The task. A cart that the reader drags, pushes, or lets an actor drive.
const task = { x: 0.9, v: 0, force: 0, reward: null, total: 0, weight: 1, steps: 0, over: "", driver: null, timer: null };
function taskReset(x = 0.9, v = 0) {
  Object.assign(task, { x, v, force: 0, reward: null, total: 0, weight: 1, steps: 0, over: "" });
}
function taskStep(force) {
  if (task.over) taskReset();
  const { x, v, left, reward } = railMove(task.x, task.v, force);
  task.total += task.weight * reward;
  task.weight *= facts.settings.gamma;
  task.steps += 1;
  Object.assign(task, { x, v, force, reward });
  if (left) task.over = "The cart fell off: −60, and the episode terminated. Nothing follows.";
  else if (task.steps >= 100)
    task.over = "Time limit: 100 steps. The episode was truncated; the task itself would go on.";
}
const actorOf = (who) => array(who === "trained" ? `actor_before.${facts.updates.length - 1}` : "actor_before.0");
const criticOf = () => twinsOf("critics_before", facts.updates.length - 1)[0];
function taskDraw(W) {
  const H = 132,
    pad = 26,
    unit = (W - 2 * pad) / 4,
    X = (v) => W / 2 + v * unit,
    y = 92;
  const at = X(task.x);
  let out = line(X(-2), y, X(2), y, "ink stroke w2");
  [-2, -1, 0, 1, 2].forEach((v) => {
    out += line(X(v), y, X(v), y + 6, "ink stroke") + text(X(v), y + 22, show(v, 0), "soft s mid");
  });
  out += [-2, 2].map((v) => line(X(v), y - 26, X(v), y + 4, "bad stroke w3")).join("");
  out += `<g class="cart">${rect(at - 26, y - 34, 52, 26, "c1 fill", 'rx="4"')}${marks.dot(at - 14, y - 5, 5, "ink fill")}${marks.dot(at + 14, y - 5, 5, "ink fill")}</g>`;
  if (Math.abs(task.v) > 0.02)
    out += arrow(at, y - 46, at + task.v * unit * 0.4, y - 46, "c1") + text(at, y - 54, `velocity ${show(task.v, 2)}`, "c1-ink xs mid");
  if (Math.abs(task.force) > 0.02)
    out += arrow(
      at - Math.sign(task.force) * (30 + 46 * Math.abs(task.force)),
      y - 20,
      at - Math.sign(task.force) * 28,
      y - 20,
      "actor",
    );
  return {
    width: W,
    height: H,
    name: "The cart on its rail",
    description: "A cart on a line from -2 to 2, with arrows for its velocity and the force that pushes it.",
    inside: out,
  };
}
function taskRender() {
  if (!facts.truth) return;
  const W = $("task-stage").clientWidth < narrowAt ? 360 : 640;
  put("task-stage", svgOf(taskDraw(W), "", "", "cart"));
  const q = curveOf(criticOf(), [task.x, task.v], [0], [task.force])[0];
  put(
    "task-says",
    `<div><span>state (position x, velocity v)</span><b>${show(task.x, 2)}, ${show(task.v, 2)}</b></div>` +
      `<div><span>reward of the last step</span><b>${task.reward === null ? "–" : show(task.reward, 2)}</b></div>` +
      `<div><span>discounted sum so far, ${task.steps} steps</span><b>${show(task.total, 2)}</b></div>` +
      `<div><span>trained critic: Q of this state and force</span><b>${show(q, 2)}</b></div>` +
      `<p role="status">${esc(task.over)}</p>`,
  );
  document
    .querySelectorAll("[data-drive]")
    .forEach((b) => b.setAttribute("aria-pressed", String(task.driver === b.dataset.drive)));
}
function taskStop() {
  clearInterval(task.timer);
  task.timer = task.driver = null;
}
function drive(who) {
  const same = task.driver === who;
  taskStop();
  if (same) return taskRender();
  if (task.over) taskReset(1.3, 0.4);
  task.driver = who;
  const one = () => {
    taskStep(act(actorOf(who), Float64Array.of(task.x, task.v), 1)[0]);
    if (task.over) taskStop();
    taskRender();
  };
  if (calm) for (let j = 0; j < 100 && task.driver; j++) one();
  else task.timer = setInterval(one, 90);
  taskRender();
}
function taskBegin() {
  if (!facts.truth) return $("task").remove();
  const frame = $("task-stage");
  let dragging = false;
  const place = (event) => {
    const box = frame.getBoundingClientRect(),
      share = (event.clientX - box.left) / box.width,
      W = box.width < narrowAt ? 360 : 640;
    taskReset(Math.max(-1.99, Math.min(1.99, ((share * W - W / 2) / (W - 52)) * 4)), 0);
    taskRender();
  };
  frame.addEventListener("pointerdown", (event) => {
    dragging = true;
    taskStop();
    frame.setPointerCapture(event.pointerId);
    place(event);
  });
  frame.addEventListener("pointermove", (event) => dragging && place(event));
  ["pointerup", "pointercancel"].forEach((name) =>
    frame.addEventListener(name, () => {
      dragging = false;
    }),
  );
  document.querySelectorAll("[data-push]").forEach((b) =>
    b.addEventListener("click", () => {
      taskStop();
      taskStep(+b.dataset.push);
      taskRender();
    }),
  );
  document.querySelectorAll("[data-drive]").forEach((b) => b.addEventListener("click", () => drive(b.dataset.drive)));
  taskRender();
}

const signed = (v) => (v > 0 ? "+" : "") + show(v, 1);

// N noisy critics of a flat truth: what the minimum does to an actor that picks the best action.
const TOY_POINTS = 61;
function noisyCritic(draw, which) {
  let a = (Math.imul(draw + 1, 0x9e3779b1) ^ Math.imul(which + 1, 0x85ebca6b)) | 0;
  const uniform = () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const waves = [1, 2, 3, 5].map((k) => [k, (2 * uniform() - 1) * 1.2, uniform() * 2 * Math.PI]);
  return Float64Array.from({ length: TOY_POINTS }, (_, j) =>
    waves.reduce((s, [k, c, f]) => s + c * Math.cos((k * Math.PI * j) / (TOY_POINTS - 1) + f), 0),
  );
}
// As TD3 has it: the actor picks by critic 1, and y is the minimum of all N at that action (src/td3_lessons/explain/toy.py).
const TOY_GAMMA = 0.9;
let toyTable = null;
function toyErrors() {
  if (toyTable) return toyTable;
  toyTable = new Float64Array(10);
  for (let draw = 0; draw < 300; draw++) {
    const first = noisyCritic(1000 + draw, 1),
      pick = first.indexOf(Math.max(...first));
    for (let n = 1, low = Infinity; n <= 10; n++) {
      low = Math.min(low, noisyCritic(1000 + draw, n)[pick]);
      toyTable[n - 1] += low / 300;
    }
  }
  return toyTable;
}
const toyBelieved = (n, rounds) => (toyErrors()[n - 1] * (1 - TOY_GAMMA ** rounds)) / (1 - TOY_GAMMA);
function toyDraw(n, draw, t, W) {
  const narrow = W < narrowAt,
    critics = Array.from({ length: n }, (_, i) => noisyCritic(draw, i + 1)),
    min = critics[0].map((_, j) => Math.min(...critics.map((c) => c[j]))),
    best = critics[0].indexOf(Math.max(...critics[0])),
    h = 190,
    w = narrow ? W - 62 : 270,
    A = axes(44, 30, w, h, [-1, 1], [-4, 4], { xlabel: "action", ylabel: "Q-value (truth: 0 for every action)" }),
    xAt = (j) => A.X(-1 + (2 * j) / (TOY_POINTS - 1)),
    lineOf = (v) => points(Array.from(v, (value, j) => [xAt(j), A.Y(Math.max(-4, Math.min(4, value)))]));
  let out = A.svg + line(A.X(-1), A.Y(0), A.X(1), A.Y(0), "exact stroke");
  critics.forEach((c, i) => {
    out += path(lineOf(c), i ? "c2 stroke w1 faint" : "c1 stroke w2");
  });
  if (n > 1) out += path(lineOf(min), "ink stroke w3");
  out +=
    line(xAt(best), A.Y(critics[0][best]), xAt(best), A.Y(0), "actor stroke") +
    marks.diamond(xAt(best), A.Y(0), 5, "actor fill edge") +
    marks.star(xAt(best), A.Y(min[best]), 8, "ystar");
  const x0 = narrow ? 44 : 392,
    w0 = narrow ? W - 130 : W - 478,
    rounds = mix(0, 10, clip01(t)),
    D = axes(x0, narrow ? 300 : 30, w0, h, [0, 10], [-11, 11], { xlabel: "rounds of y", ylabel: "believed of the pick, on average" });
  out += D.svg + line(x0, D.Y(0), x0 + w0, D.Y(0), "exact stroke");
  const ends = [...new Set([1, 2, 10, n])].map((count_) => {
    const cls = count_ === n ? "actor" : "soft-stroke";
    out += path(points(Array.from({ length: 41 }, (_, q) => [D.X((rounds * q) / 40), D.Y(toyBelieved(count_, (rounds * q) / 40))])), `${cls} stroke ${count_ === n ? "w3" : "w1"}`);
    return { y: D.Y(toyBelieved(count_, rounds)), text: `${count_}: ${signed(toyBelieved(count_, rounds))}`, cls: count_ === n ? "actor-ink b" : "soft" };
  });
  const y = narrow ? 556 : 276;
  return {
    width: W,
    height: narrow ? 580 : 300,
    name: `${n} noisy critics, and y fed back`,
    description: `Left: ${n} noisy critics of a flat truth; the actor picks the best action of critic 1, and y is the minimum there. Right: what is believed after ten rounds, for one, two and ten critics.`,
    inside:
      out +
      stacked(ends, x0 + w0 + 5, 14, narrow ? 304 : 34, narrow ? 490 : 220) +
      text(44, y, `◆ the actor's pick, by critic 1   ★ y there: ${show(min[best], 2)}`, "ink s num"),
  };
}

// TD3 trained in the page, with one part changed, beside the unchanged algorithm.
const RACE_UPDATES = facts.race?.updates ?? 0,
  RACE_EVERY = 250,
  RACE_SEEDS = [1, 2, 3, 4, 5];
const race = { live: {}, workers: [], queue: [], running: false };
const raceSetup = () => ({ ...facts.race, starts: Float64Array.from(array("starts")) });
const recorded = {};
const recordedRace = (name) => {
  const columns = facts.races?.[name];
  if (!columns) return [];
  return (recorded[name] ||= columns.return.map((run_, seed) =>
    run_.map((_, at) => Object.fromEntries([["update", (at * RACE_UPDATES) / (columns.return[seed].length - 1)], ...Object.keys(columns).map((measure) => [measure, columns[measure][seed][at]])])),
  ));
};
function raceRuns(name) {
  return race.live[name]?.some((run_) => run_.length > 1) ? race.live[name] : recordedRace(name);
}
function racePanel(x0, y0, w, h, measure, label, name) {
  const series = [["td3", raceRuns("td3"), "c1"], [name, raceRuns(name), "bad"]],
    all = series.flatMap(([, runs]) => runs.map((r) => r.slice(1).map((m) => m[measure]))).filter((v) => v.length);
  let range = spanOf(all.length ? all : [[0, 1]], 0.08);
  if (measure === "return") range = [Math.max(range[0], -75), Math.min(1, range[1])];
  const A = axes(x0, y0, w, h, [0, RACE_UPDATES], range, { xlabel: "updates", ylabel: label, xticks: 3 });
  let out = A.svg;
  if (range[0] < 0 && range[1] > 0) out += line(x0, A.Y(0), x0 + w, A.Y(0), "axis");
  const inside = (v) => Math.max(range[0], Math.min(range[1], v));
  series.forEach(([, runs, cls]) => {
    const rows = runs.filter((r) => r.length > 1),
      most = Math.min(...rows.map((r) => r.length));
    rows.forEach((r) => {
      out += path(points(r.slice(1).map((m) => [A.X(m.update), A.Y(inside(m[measure]))])), `${cls} stroke thin faint`);
    });
    if (!rows.length) return;
    const average = Array.from({ length: most - 1 }, (_, j) => [
      A.X(rows[0][j + 1].update),
      A.Y(inside(rows.reduce((s, r) => s + r[j + 1][measure], 0) / rows.length)),
    ]);
    out += path(points(average), `${cls} stroke w3`);
  });
  return out;
}
function raceDraw(name, W) {
  const narrow = W < narrowAt,
    { measure, label } = lessons.races[name],
    w = narrow ? W - 70 : (W - 150) / 2,
    h = 170,
    second = narrow ? [54, 274] : [54 + w + 76, 34];
  const out =
    racePanel(54, 34, w, h, "return", lessons.measures.return, name) +
    racePanel(second[0], second[1], w, h, measure, lessons.measures[measure], name) +
    line(54, narrow ? 508 : 264, 78, narrow ? 508 : 264, "c1 stroke w3") +
    text(84, narrow ? 512 : 268, "TD3", "c1-ink s b") +
    line(124, narrow ? 508 : 264, 148, narrow ? 508 : 264, "bad stroke w3") +
    text(154, narrow ? 512 : 268, label, "bad s b") +
    text(narrow ? 54 : W - 8, narrow ? 530 : 268, "thin: one seed each; thick: mean", narrow ? "soft s" : "soft s end");
  return {
    width: W,
    height: narrow ? 544 : 280,
    name: `TD3 and ${label}, ${RACE_UPDATES} updates`,
    description: `Return and ${lessons.measures[measure]} along training, of TD3 and of TD3 with ${label}.`,
    inside: out,
  };
}
// The verdict of the recorded seeds, with its interval, on Rail and where the same was trained on a body.
function raceSays(name) {
  const { measure, label, expect } = lessons.races[name],
    V = facts.verdicts[name],
    plus = (v, digits) => (v > 0 ? "+" : "") + show(v, digits),
    digits = Math.max(...V.measure.map(Math.abs)) < 0.2 ? 4 : 2,
    apart = V.apart[0] > 0 || V.apart[1] < 0 ? "differs" : "is undecided",
    rows = Object.entries(V.bodies).map(
      ([body, row]) => `<li>${esc(body)}: ${esc(facts.said[row.verdict])}: ${group(Math.round(row.ours))} instead of ${group(Math.round(row.theirs))} (${plus(row.difference[1], 0)} to ${plus(row.difference[2], 0)})</li>`,
    );
  return (
    `<p>${esc(expect)}</p><p><b>Return on Rail: “${esc(label)}” ${esc(V.said)}.</b> ${show(V.return[0], 1)} instead of ${show(V.return[1], 1)} (${plus(V.difference[1], 1)} to ${plus(V.difference[2], 1)}). ` +
    `<b>${esc(lessons.measures[measure])}</b> ${apart}: ${show(V.measure[0], digits)} instead of ${show(V.measure[1], digits)} (${plus(V.apart[0], digits)} to ${plus(V.apart[1], digits)}). ` +
    `Last 1,000 updates, ${V.seeds} recorded seeds each, 95 % intervals of the difference.</p>` +
    (rows.length ? `<p>The same change on bodies, from this project's stored runs:</p><ul>${rows.join("")}</ul>` : "")
  );
}
function raceRender() {
  if (!facts.race) return;
  const W = $("race-stage").clientWidth < narrowAt ? 360 : 640;
  put("race-stage", svgOf(raceDraw(state.race, W), "", "", "race"));
  put("race-says", raceSays(state.race));
  document.querySelectorAll("[data-race]").forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.race === state.race)));
  $("race-go").textContent = race.running ? "Stop" : `Train it here, ${RACE_SEEDS.length} seeds`;
  const lived = race.live[state.race],
    jobs = [...(race.live.td3 ?? []), ...(lived ?? [])],
    done = jobs.reduce((sum, r) => sum + (r.at(-1)?.update ?? 0), 0);
  $("race-state").textContent = lived
    ? race.running
      ? `training in this page: ${Math.round((100 * done) / (jobs.length * RACE_UPDATES))} % of ${jobs.length} runs`
      : "trained in this page; the verdict is that of the recorded seeds"
    : "recorded with the same code; train it here to see it happen";
}
function raceStop() {
  race.workers.forEach((worker) => worker.terminate());
  Object.assign(race, { workers: [], queue: [], running: false });
  raceRender();
}
// Runs in web workers, one per core up to four; each posts what it measured, four times per thousand updates.
function raceStart() {
  if (race.running) return raceStop();
  const source =
      `${makeTrainer.toString()};onmessage = ({ data: [setup, changes, seed, updates, every] }) => {` +
      `const T = makeTrainer(setup, changes, seed); postMessage(T.measure());` +
      `for (let u = 1; u <= updates; u++) { T.step(); if (u % every === 0) postMessage(T.measure()); } postMessage(null); };`,
    url = URL.createObjectURL(new Blob([source], { type: "text/javascript" })),
    seeds = RACE_SEEDS,
    names = race.live.td3?.every((r) => r.at(-1)?.update === RACE_UPDATES) ? [state.race] : ["td3", state.race];
  names.forEach((name) => {
    race.live[name] = seeds.map(() => []);
  });
  race.queue = seeds.flatMap((seed, at) => names.map((name) => ({ name, seed, at })));
  race.running = true;
  const next = (worker) => {
    const job = race.queue.shift();
    if (!job) {
      worker.terminate();
      race.workers = race.workers.filter((w) => w !== worker);
      if (!race.workers.length) race.running = false;
      return raceRender();
    }
    worker.onmessage = ({ data }) => {
      if (data === null) return next(worker);
      race.live[job.name][job.at].push(data);
      raceRender();
    };
    worker.postMessage([raceSetup(), job.name === "td3" ? [] : [job.name], job.seed, RACE_UPDATES, RACE_EVERY]);
  };
  const many = Math.max(1, Math.min(4, (navigator.hardwareConcurrency || 2) - 1, race.queue.length));
  race.workers = Array.from({ length: many }, () => new Worker(url));
  race.workers.slice().forEach(next);
  raceRender();
}

// Predictions: asked before the step shows its result; the answer stays on the page.
const predictions = {
  6: (R, j) => {
    const a = R.next_action[j * actionSize],
      n = R.raw[j * actionSize],
      end = R.smoothed[j * actionSize],
      cut = Math.abs(end - R.noisy[j * actionSize]) > 1e-9;
    return {
      question: `a′ = ${show(a, 2)}, the noise drawn is ${show(n, 2)}. Where will ã be?`,
      options: ["at a bound of the range", "inside, moved by the noise", "outside the range"],
      right: cut ? 0 : 1,
      because: `ã = ${show(end, 3)}: ${cut ? "a′ plus noise left the range and was clamped." : "a′ plus noise stayed inside, so nothing was clamped."}`,
    };
  },
  8: (R, j) => {
    const [q1, q2] = [R.target_q_values[0][j], R.target_q_values[1][j]];
    return {
      question: "Which Q-value of this row is kept?",
      options: [`Q1′ = ${show(q1, 2)}`, `Q2′ = ${show(q2, 2)}`, "their mean"],
      right: q1 <= q2 ? 0 : 1,
      because: `The smaller one, ${show(Math.min(q1, q2), 2)}; in other rows it is the other critic's.`,
    };
  },
  9: (R, j) => ({
    question: `This row has r = ${show(R.batch.reward[j], 2)}${R.batch.terminated[j] ? ", and the cart fell" : R.batch.timed_out[j] ? ", and the time limit was reached" : ""}. What is y?`,
    options: ["the reward alone", "the reward plus γ · min"],
    right: R.batch.terminated[j] ? 0 : 1,
    because: R.batch.terminated[j]
      ? `y = ${show(R.y[j], 2)}: after a termination nothing follows.`
      : `y = ${show(R.y[j], 2)}: ${R.batch.timed_out[j] ? "a time-out ends the episode, not the task." : "the task goes on."}`,
  }),
  13: (R, j) => {
    const a = R.policy[j * actionSize],
      b = R.policyAfter[j * actionSize];
    return {
      question: "Which way will the actor's action move?",
      options: ["to the left", "to the right", "not in this update"],
      right: R.turn ? (b > a ? 1 : 0) : 2,
      because: R.turn
        ? `From ${show(a, 4)} to ${show(b, 4)}: ${R.slope && (b - a) * R.slope[j * actionSize] > 0 ? "uphill on Q1's curve" : "the other rows of the batch and Adam's momentum pulled harder than its own gradient"}.`
        : "The actor waits: this update is not a multiple of the policy delay.",
    };
  },
};
const answers = new Map();
const score_ = { right: 0, asked: 0 };
const predictionKey = (S) => `${S.u}-${S.step}-${S.pokes.row}`;
function predictHtml(S, R) {
  if (!asks(S) && (!answers.has(predictionKey(S)) || changed(S).length)) return "";
  const asked = predictions[S.step](R, R.shown[S.pokes.row]),
    given = answers.get(predictionKey(S));
  return (
    `<h3>Predict first</h3><p>${esc(asked.question)}</p><div class="choices">` +
    asked.options
      .map((option, j) => `<button data-predict="${j}" aria-pressed="${given === j}">${esc(option)}</button>`)
      .join("") +
    "</div>" +
    (given === undefined
      ? ""
      : `<p role="status">${score_.right} of ${score_.asked} right so far. <b>${given === asked.right ? "Right." : `Not quite: ${esc(asked.options[asked.right])}.`}</b> ${esc(asked.because)}</p>`)
  );
}

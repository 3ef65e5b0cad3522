"use strict";
// The recorded run, and the page's own TD3 update: one pure function of (update, pokes). Without pokes it agrees with
// what PyTorch recorded to 1e-5 (tests/lessons/explain/test_page.py); with them it shows what would have happened.

const payload = JSON.parse(document.getElementById("trace").textContent);
const facts = payload.facts;
const numbers = (() => {
  const bytes = Uint8Array.from(atob(payload.blob), (c) => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
})();
payload.blob = null;

const has = (name) => name in payload.arrays;
function array(name) {
  const [start, shape] = payload.arrays[name];
  return numbers.subarray(start, start + shape.reduce((a, b) => a * b, 1));
}
const shapeOf = (name) => payload.arrays[name][1];
// A function in the place of a step: the page cannot compute it, and shows what was recorded.
const replaced = (step) => facts.replaced?.[step];

const stateSize = facts.row_state,
  actionSize = facts.low.length,
  rowSize = 2 * stateSize + actionSize + 2;
const batchSize = facts.settings.batch_size;
const memory = array("memory"),
  timedOut = array("timed_out");
const twinsOf = (name, u) => {
  const both = array(`${name}.${u}`),
    half = both.length / 2;
  return [both.subarray(0, half), both.subarray(half)];
};

// Networks: weights [inputs, outputs] then biases, layer by layer, ReLU between.
function forward(p, sizes, x, n) {
  const acts = [x];
  let start = 0;
  for (let d = 0; d + 1 < sizes.length; d++) {
    const i = sizes[d],
      o = sizes[d + 1],
      below = acts[d],
      out = new Float64Array(n * o),
      last = d + 2 === sizes.length;
    for (let r = 0; r < n; r++) {
      for (let k = 0; k < o; k++) {
        let sum = p[start + i * o + k];
        for (let j = 0; j < i; j++) sum += below[r * i + j] * p[start + j * o + k];
        out[r * o + k] = last || sum > 0 ? sum : 0;
      }
    }
    start += (i + 1) * o;
    acts.push(out);
  }
  return acts;
}

function backward(p, sizes, acts, n, outGradient) {
  const weights = new Float64Array(p.length);
  let gradient = outGradient,
    end = p.length;
  for (let d = sizes.length - 2; d >= 0; d--) {
    const i = sizes[d],
      o = sizes[d + 1],
      below = acts[d],
      start = end - (i + 1) * o;
    const next = new Float64Array(n * i);
    for (let r = 0; r < n; r++) {
      for (let k = 0; k < o; k++) {
        const g = gradient[r * o + k];
        if (g === 0) continue;
        weights[start + i * o + k] += g;
        for (let j = 0; j < i; j++) {
          weights[start + j * o + k] += below[r * i + j] * g;
          if (d === 0 || below[r * i + j] > 0) next[r * i + j] += p[start + j * o + k] * g;
        }
      }
    }
    gradient = next;
    end = start;
  }
  return { weights, inputs: gradient };
}

function act(p, states, n, low = facts.low, high = facts.high) {
  const out = forward(p, facts.sizes.actor, states, n).at(-1);
  return out.map((v, k) => {
    const d = k % actionSize;
    return (low[d] + high[d]) / 2 + ((high[d] - low[d]) / 2) * Math.tanh(v);
  });
}

function joined(states, actions, n) {
  const x = new Float64Array(n * (stateSize + actionSize));
  for (let r = 0; r < n; r++) {
    for (let j = 0; j < stateSize; j++) x[r * (stateSize + actionSize) + j] = states[r * stateSize + j];
    for (let j = 0; j < actionSize; j++) x[r * (stateSize + actionSize) + stateSize + j] = actions[r * actionSize + j];
  }
  return x;
}
const score = (p, states, actions, n) => forward(p, facts.sizes.critic, joined(states, actions, n), n).at(-1);

function adam(p, gradient, first, second, steps, rate) {
  const count = steps + 1,
    c1 = 1 - 0.9 ** count,
    c2 = 1 - 0.999 ** count;
  return p.map((w, k) => {
    const g = gradient[k],
      m = first[k] + (g - first[k]) * 0.1,
      v = 0.999 * second[k] + 0.001 * g * g;
    return w - ((rate / c1) * m) / (Math.sqrt(v / c2) + 1e-8);
  });
}
const wide = (p) => Float64Array.from(p);
const stepped = (p, g, name, u, rate, twin) => {
  if (facts.settings.optimizer === "sgd") return wide(p).map((w, k) => w - rate * g[k]);
  const pick = (what) => (twin === undefined ? array(`${name}_${what}.${u}`) : twinsOf(`${name}_${what}`, u)[twin]);
  return adam(wide(p), g, pick("first_moment"), pick("second_moment"), pick("steps")[0], rate);
};

const POKES = {
  row: facts.row ?? 0,
  capacity: facts.settings.buffer_size,
  low: facts.low[0],
  high: facts.high[0],
  sigma: facts.settings.target_policy_noise,
  clip: facts.settings.target_noise_clip,
  aim: null,
  gamma: facts.settings.gamma,
  dead: false,
  rate: 1,
  delay: facts.settings.policy_delay,
  tau: facts.settings.tau,
  compare: "earned",
  breaks: [],
};
const broken = (k, name) => k.breaks.includes(name);

function batchOf(u, k) {
  const filled = facts.filled[u],
    kept = Math.min(filled, k.capacity);
  let rows = Array.from(array(`rows.${u}`), Math.round);
  if (facts.live && kept < filled) rows = rows.map((r) => filled - kept + (r % kept));
  if (facts.live && broken(k, "oldest") && kept < filled) rows = rows.map((r) => r % kept);
  if (facts.live && broken(k, "newest")) rows = rows.map((_, j) => filled - batchSize + j);
  const part = (from, size) =>
    Float64Array.from(rows.flatMap((r) => Array.from(memory.subarray(r * rowSize + from, r * rowSize + from + size))));
  const a = stateSize,
    b = a + actionSize,
    c = b + stateSize;
  return {
    rows,
    state: part(0, a),
    action: part(a, actionSize),
    next_state: part(b, stateSize),
    reward: part(c, 1),
    terminated: part(c + 1, 1),
    timed_out: rows.map((r) => timedOut[r]),
  };
}

const smoothing = (u, k) => {
  const normal = array(`normal.${u}`),
    n = batchSize;
  const blur = new Float64Array(n * actionSize),
    raw = new Float64Array(n * actionSize);
  for (let j = 0; j < n * actionSize; j++) {
    const d = j % actionSize,
      half = (facts.high[d] - facts.low[d]) / 2;
    raw[j] = normal[broken(k, "onenoise") ? d : j] * k.sigma * half;
    blur[j] = Math.max(-k.clip * half, Math.min(k.clip * half, raw[j]));
  }
  return { raw, blur };
};
const clamped = (a, d) => Math.max(facts.low[d], Math.min(facts.high[d], a));

const cache = new Map();
function run(u, k) {
  const key = JSON.stringify([u, k]);
  if (!cache.has(key)) {
    if (cache.size > 40) cache.clear();
    cache.set(key, compute(u, k));
  }
  return cache.get(key);
}

function compute(u, k) {
  const n = batchSize,
    B = batchOf(u, k),
    live = facts.live,
    R = { u, number: facts.updates[u], batch: B };
  const S = facts.settings,
    shown = facts.shown[u];
  R.shown = shown;
  const row = shown[k.row];
  const actor = array(`actor_before.${u}`),
    actorTarget = array(`actor_target_before.${u}`);
  const critics = twinsOf("critics_before", u),
    targets = twinsOf("critics_target_before", u);
  const next = live ? act(actorTarget, B.next_state, n) : wide(array(`next_action.${u}`));
  R.next_online = live ? act(actor, B.next_state, n) : wide(array(`next_online.${u}`));
  R.next_target = next;
  R.next_action = broken(k, "online")
    ? live
      ? R.next_online
      : next.map((v, j) => {
          const at = shown.indexOf(Math.floor(j / actionSize));
          return at < 0 ? v : R.next_online[at * actionSize + (j % actionSize)];
        })
    : next;
  const { raw, blur } = smoothing(u, k);
  R.raw = raw;
  R.blur = broken(k, "noclip") ? raw : blur;
  R.noisy = R.next_action.map((v, j) => v + R.blur[j]);
  R.smoothed = R.noisy.map((v, j) => (broken(k, "noclamp") ? v : clamped(v, j % actionSize)));
  if (k.aim !== null) R.smoothed[row * actionSize] = k.aim;
  if (facts.replaced) R.smoothed = wide(array(`smoothed_action.${u}`));
  if (replaced(6)) {
    R.noisy = R.smoothed;
    R.raw = R.blur = R.smoothed.map((v, j) => v - R.next_action[j]);
  }
  const second = broken(k, "twonoise")
    ? R.next_action.map((v, j) => clamped(v - R.blur[j], j % actionSize))
    : R.smoothed;
  R.second = second;
  if (live) {
    R.target_q_values = [score(targets[0], B.next_state, R.smoothed, n), score(targets[1], B.next_state, second, n)];
  } else {
    R.target_q_values = twinsOf("target_q_values", u).map((s) => wide(s));
    shown.forEach((place, at) =>
      [R.smoothed, second].forEach((a, twin) => {
        const moved = a[place * actionSize] - array(`smoothed_action.${u}`)[place * actionSize];
        if (Math.abs(moved) > 1e-6)
          R.target_q_values[twin][place] = between(curve("target", u, twin, at), a[place * actionSize]);
      }),
    );
  }
  const [t1, t2] = R.target_q_values;
  R.next_q = t1.map((v, j) =>
    broken(k, "mean")
      ? (v + t2[j]) / 2
      : broken(k, "max")
        ? Math.max(v, t2[j])
        : broken(k, "first")
          ? v
          : Math.min(v, t2[j]),
  );
  if (facts.replaced) R.next_q = wide(array(`next_q.${u}`));
  R.ended = B.terminated.map((v, j) => {
    if (broken(k, "nodeath")) return 0;
    if (broken(k, "timeout") && B.timed_out[j]) return 1;
    return k.dead && j === row ? 1 : v;
  });
  R.y = R.next_q.map((v, j) => B.reward[j] + k.gamma * (1 - R.ended[j]) * v);
  if (facts.replaced) R.y = wide(array(`target_q.${u}`));
  R.policy = live ? act(actor, B.state, n) : null;
  const asked = broken(k, "ownaction") && live ? R.policy : B.action;
  R.asked = asked;
  R.q = live ? critics.map((p) => score(p, B.state, asked, n)) : twinsOf("q_values", u).map((s) => wide(s));
  const meanY = R.y.reduce((a, b) => a + b, 0) / n;
  const squares = (q) =>
    broken(k, "broadcast")
      ? q.reduce((s, v) => s + R.y.reduce((a, y) => a + (v - y) ** 2, 0), 0) / (n * n)
      : q.reduce((s, v, j) => s + (v - R.y[j]) ** 2, 0) / n;
  R.losses = R.q.map(squares);
  R.loss = facts.replaced ? array(`loss.${u}`)[0] : R.losses[0] + R.losses[1];
  R.critics = critics;
  R.actor = actor;
  R.targets = targets;
  R.actorTarget = actorTarget;
  R.turn = R.number % k.delay === 0;
  R.glides = R.turn || broken(k, "everyupdate");
  R.tau = broken(k, "hardcopy") ? 1 : k.tau;
  if (live) learn(R, k, u, asked, meanY);
  else replay(R, k, u);
  const lerp = (p, to) => wide(p).map((w, j) => w + (R.glides ? R.tau : 0) * (to[j] - w));
  R.actorTargetAfter = lerp(actorTarget, R.actorAfter);
  R.targetsAfter = R.targetsMoved.map((p, twin) => lerp(p, R.criticsAfter[twin]));
  if (facts.replaced && R.turn) {
    R.actorTargetAfter = wide(array(`actor_target_after.${u}`));
    R.targetsAfter = twinsOf("critics_target_after", u).map(wide);
  }
  if (live) {
    // The Bellman target of the same rows, by the target networks after this update: the loop closes.
    const later = act(R.actorTargetAfter, B.next_state, n).map((v, j) => clamped(v + R.blur[j], j % actionSize)),
      [q1, q2] = R.targetsAfter.map((p) => score(p, B.next_state, later, n));
    R.yAfter = q1.map((v, j) => B.reward[j] + k.gamma * (1 - R.ended[j]) * Math.min(v, q2[j]));
  }
  return R;
}

function learn(R, k, u, asked, meanY) {
  const n = batchSize,
    B = R.batch,
    S = facts.settings,
    sizes = facts.sizes.critic;
  R.criticGradients = R.critics.map((p, twin) => {
    const acts = forward(p, sizes, joined(B.state, asked, n), n);
    const slope = R.q[twin].map((q, j) => (2 * (q - (broken(k, "broadcast") ? meanY : R.y[j]))) / n);
    return backward(p, sizes, acts, n, slope).weights;
  });
  const rate = S.critic_learning_rate * k.rate;
  R.criticsAfter = R.critics.map((p, twin) => stepped(p, R.criticGradients[twin], "critics", u, rate, twin));
  if (broken(k, "onecritic")) R.criticsAfter[1] = wide(R.critics[1]);
  R.qAfter = R.criticsAfter.map((p) => score(p, B.state, asked, n));
  R.lossesAfter = R.qAfter.map((q) => q.reduce((s, v, j) => s + (v - R.y[j]) ** 2, 0) / n);
  R.targetsMoved = R.targets;
  if (broken(k, "leak")) {
    R.targetGradients = R.targets.map((p, twin) => {
      const acts = forward(p, sizes, joined(B.next_state, R.smoothed, n), n);
      const slope = R.y.map((y, j) => {
        const smaller = R.target_q_values[twin][j] <= R.target_q_values[1 - twin][j] ? 1 : 0;
        return (smaller * S.gamma * (1 - R.ended[j]) * 2 * (2 * y - R.q[0][j] - R.q[1][j])) / n;
      });
      return backward(p, sizes, acts, n, slope).weights;
    });
    // An optimizer that holds the targets too: Adam's first step has the size of the rate in every weight.
    R.targetsMoved = R.targets.map((p, twin) =>
      wide(p).map((w, j) => w - rate * Math.sign(R.targetGradients[twin][j])),
    );
  }
  const own = R.policy,
    judges = R.criticsAfter;
  const runs = judges.map((p) => forward(p, sizes, joined(B.state, own, n), n));
  R.ownScores = runs.map((acts) => acts.at(-1));
  const both = broken(k, "both"),
    least = broken(k, "least");
  const share = (twin, j) =>
    both ? 0.5 : least ? (R.ownScores[twin][j] <= R.ownScores[1 - twin][j] ? 1 : 0) : 1 - twin;
  R.slope = new Float64Array(n * actionSize);
  judges.forEach((p, twin) => {
    const { inputs } = backward(p, sizes, runs[twin], n, Float64Array.from({ length: n }, (_, j) => share(twin, j)));
    for (let j = 0; j < n; j++) {
      for (let d = 0; d < actionSize; d++)
        R.slope[j * actionSize + d] += inputs[j * (stateSize + actionSize) + stateSize + d];
    }
  });
  if (broken(k, "stored")) R.slope.fill(0);
  R.climbed = R.ownScores[0].map((v, j) => share(0, j) * v + share(1, j) * R.ownScores[1][j]);
  R.actorLoss = -R.climbed.reduce((a, b) => a + b, 0) / n;
  const acts = forward(R.actor, facts.sizes.actor, B.state, n),
    out = acts.at(-1);
  const down = out.map((v, j) => {
    const halfRange = (facts.high[j % actionSize] - facts.low[j % actionSize]) / 2;
    return (-R.slope[j] * halfRange * (1 - Math.tanh(v) ** 2)) / n;
  });
  R.actorGradient = backward(R.actor, facts.sizes.actor, acts, n, down).weights;
  R.actorAfter = wide(R.actor);
  if (R.turn && !broken(k, "stored")) {
    R.actorAfter = stepped(R.actor, R.actorGradient, "actor", u, S.actor_learning_rate);
  }
  R.policyAfter = act(R.actorAfter, B.state, n);
  const mean = (p, actions) => score(p, B.state, actions, n).reduce((a, b) => a + b, 0) / n;
  R.rise = [mean(judges[0], own), mean(judges[0], R.policyAfter)];
}

// Networks too large for the page, or replaced steps: from step 12 on, what was recorded.
function replay(R, k, u) {
  const pair = u - (u % 2) + 1;
  R.criticGradients = twinsOf("critics_gradient", u);
  R.criticsAfter = twinsOf("critics_after", u);
  R.targetsMoved = R.targets;
  R.actorGradient = array(`actor_gradient.${has(`actor_gradient.${u}`) ? u : pair}`);
  R.turn = has(`actor_after.${u}`);
  R.glides = R.turn;
  R.actorAfter = R.turn ? array(`actor_after.${u}`) : R.actor;
  R.slope = null;
  R.actorLoss = R.turn ? array(`actor_loss.${u}`)[0] : null;
  R.policy = spread(array(`policy_before.${u}`), R.shown);
  R.policyAfter = spread(array(`policy_after.${u}`), R.shown);
  R.climbed = null;
  R.rise = null;
}
function spread(values, shown) {
  const all = new Float64Array(batchSize * actionSize);
  shown.forEach((place, at) => {
    for (let d = 0; d < actionSize; d++) all[place * actionSize + d] = values[at * actionSize + d];
  });
  return all;
}

// Curves over the first action dimension at a shown row; the other dimensions stay where that row has them.
const GRID = 61;
const gridAt = (j) => facts.low[0] + ((facts.high[0] - facts.low[0]) * j) / (GRID - 1);
function between(values, a) {
  const place = Math.max(
    0,
    Math.min(GRID - 1.000001, ((a - facts.low[0]) / (facts.high[0] - facts.low[0])) * (GRID - 1)),
  );
  const at = Math.floor(place);
  return values[at] + (place - at) * (values[at + 1] - values[at]);
}
function curveOf(p, state, action, grid = null) {
  const points = grid || Array.from({ length: GRID }, (_, j) => gridAt(j));
  const states = new Float64Array(points.length * stateSize),
    actions = new Float64Array(points.length * actionSize);
  points.forEach((a, j) => {
    states.set(state, j * stateSize);
    actions.set(action, j * actionSize);
    actions[j * actionSize] = a;
  });
  return score(p, states, actions, points.length);
}
function curve(kind, u, twin, at) {
  const all = array(`slice_${kind}.${u}`),
    each = GRID;
  return all.subarray((twin * 8 + at) * each, (twin * 8 + at + 1) * each);
}
const qAfter = (R, j, twin) => R.qAfter[twin][j];
const vectorAt = (all, place, size) => all.subarray(place * size, (place + 1) * size);
function qCurve(R, kind, twin, at) {
  if (!facts.live) return curve(kind, R.u, twin, at);
  const place = R.shown[at],
    state = vectorAt(kind === "target" ? R.batch.next_state : R.batch.state, place, stateSize);
  const p = { target: R.targets, before: R.critics, after: R.criticsAfter, actor: R.criticsAfter }[kind][twin];
  const action = { target: R.smoothed, before: R.batch.action, after: R.batch.action, actor: R.policy }[kind];
  return curveOf(p, state, vectorAt(action, place, actionSize));
}

// One move of the cart, as src/td3/environments/rail.py has it.
function railMove(x, v, force) {
  const end = 2,
    v2 = Math.max(-end, Math.min(end, 0.9 * v + 0.4 * force)),
    moved = x + 0.1 * v2,
    left = Math.abs(moved) > end;
  return {
    x: Math.max(-end, Math.min(end, moved)),
    v: v2,
    left,
    reward: -(x * x + 0.1 * v * v + 0.001 * force * force) - (left ? 60 : 0),
  };
}
// The best possible on Rail, Q*: one move of the cart, then the value of the best policy from dynamic programming.
function bestQ(state, force) {
  const nodes = array("truth"),
    side = shapeOf("truth")[0],
    end = 2,
    { x, v, left, reward } = railMove(state[0], state[1], force);
  if (left) return reward;
  const across = ((x + end) / (2 * end)) * (side - 1),
    along_ = ((v + end) / (2 * end)) * (side - 1),
    r = Math.max(0, Math.min(side - 2, Math.floor(across))),
    c = Math.max(0, Math.min(side - 2, Math.floor(along_))),
    [d, e, at] = [across - r, along_ - c, r * side + c],
    value = (1 - d) * ((1 - e) * nodes[at] + e * nodes[at + 1]) + d * ((1 - e) * nodes[at + side] + e * nodes[at + side + 1]);
  return reward + facts.settings.gamma * value;
}
const bestCurve = (state) => Array.from({ length: GRID }, (_, j) => bestQ(state, gridAt(j)));
// What a policy really earns after each force: the cart is driven by it from there on, until nothing is left to earn.
function earnedQ(actor, state, forces) {
  const n = forces.length,
    total = new Float64Array(n),
    at = new Float64Array(2 * n),
    on = new Uint8Array(n).fill(1);
  for (let j = 0; j < n; j++) at.set(state, 2 * j);
  for (let step = 0, weight = 1, force = forces; step < 500; step++, weight *= facts.settings.gamma) {
    for (let j = 0; j < n; j++) {
      if (!on[j]) continue;
      const { x, v, left, reward } = railMove(at[2 * j], at[2 * j + 1], force[j]);
      total[j] += weight * reward;
      at[2 * j] = x;
      at[2 * j + 1] = v;
      if (left) on[j] = 0;
    }
    force = act(actor, at, n);
  }
  return total;
}
const earnedCache = new Map();
function earnedCurve(actor, state) {
  const key = `${actor.byteOffset} ${state.join(" ")}`;
  if (!earnedCache.has(key)) {
    if (earnedCache.size > 60) earnedCache.clear();
    earnedCache.set(key, earnedQ(actor, state, Array.from({ length: GRID }, (_, j) => gridAt(j))));
  }
  return earnedCache.get(key);
}

"use strict";
// The story: two learners that train while the page is read, six screens, the four bodies, belief over training, the film.

// A quantity over training: mean and interval as a band, `upto` as a share of the axis.
function band(A, steps_, [mean_, low, high], cls, dashed, upto = Infinity) {
  const kept = steps_.map((v, j) => j).filter((j) => steps_[j] <= upto && Number.isFinite(low[j])),
    inside = (v) => Math.max(A.range[0], Math.min(A.range[1], v)),
    at = (values) => kept.map((j) => [A.X(steps_[j]), A.Y(inside(values[j]))]);
  if (kept.length < 2) return "";
  return path(points([...at(high), ...at(low).reverse()]) + "Z", `${cls} band`) + path(points(at(mean_)), `${cls} stroke w2${dashed ? " dashed" : ""}`);
}
// Predicted and earned of one learner; the area between them is what it believes too much, or too little.
function belief(x, y, w, h, title, data, steps_, range, cls, { best = null, upto = Infinity, xlabel = "updates", xticks = 3, to = steps_.at(-1), bare = false } = {}) {
  const A = { ...axes(x, y, w, h, [0, to], range, { xlabel, xticks }), range },
    shown_ = steps_.map((v, j) => j).filter((j) => steps_[j] <= Math.min(upto, to)),
    inside = (v) => Math.max(range[0], Math.min(range[1], v)),
    at = (values) => shown_.map((j) => [A.X(steps_[j]), A.Y(inside(values[j]))]),
    between_ = shown_.length > 1 ? path(points([...at(data.believed[0]), ...at(data.earned[0]).reverse()]) + "Z", "apart") : "";
  return {
    A,
    svg:
      (range[1] > 0 && best !== null ? rect(x, y, w, A.Y(0) - y, "cannot") : "") +
      (bare ? "" : A.svg.replace('class="panel"', 'class="panel clear"')) +
      between_ +
      (best === null ? "" : line(x, A.Y(best), x + w, A.Y(best), "exact stroke w1")) +
      band(A, steps_, data.earned, cls, false, Math.min(upto, to)) +
      band(A, steps_, data.believed, cls, true, Math.min(upto, to)) +
      text(x, y - 8, title, `${cls}-ink s b`),
  };
}
function beliefKey(x, y, narrow, best) {
  return (
    line(x, y - 4, x + 22, y - 4, "ink stroke w2 dashed") + text(x + 28, y, "predicted", "soft s") +
    line(x + 92, y - 4, x + 114, y - 4, "ink stroke w2") + text(x + 120, y, "earned", "soft s") +
    (best ? line(x + 172, y - 4, x + 194, y - 4, "exact stroke w1") + text(x + 200, y, narrow ? "Q*" : "best possible, Q*", "soft s") : "")
  );
}

// The opening: DDPG and TD3 train side by side, in two workers, on the settings of the whole page.
const live = { runs: {}, workers: [], running: false };
const LIVE_SEED = 1;
const RAIL_RANGE = [-32, 4];
const recordedSeeds = () => facts.races.td3.q.length;
const LEARNERS = [["ddpg", "DDPG: one critic", "ddpg"], ["td3", "TD3: two critics, and patience", "c1"]];
function liveDraw(W) {
  const narrow = W < narrowAt,
    w = narrow ? W - 60 : (W - 128) / 2,
    h = narrow ? 96 : 132;
  let out = "";
  LEARNERS.forEach(([name, title, cls], j) => {
    const x = narrow ? 46 : 46 + j * (w + 56),
      y = narrow ? 50 + j * 204 : 50,
      run_ = live.runs[name],
      P = belief(x, y + 14, w, h, title, facts.rail[name], facts.rail.steps, RAIL_RANGE, cls, { best: facts.rail.best });
    out += P.svg.replace(/class="(\w+) stroke w2/g, 'class="$1 stroke w1 faint') + cart(x, y - 14, w, run_?.cart[0] ?? 0, null, null, cls);
    if (run_?.moments.length > 1) {
      const line_ = (measure) => points(run_.moments.map((m) => [P.A.X(m.update), P.A.Y(Math.max(RAIL_RANGE[0], Math.min(RAIL_RANGE[1], m[measure])))]));
      out += path(line_("earned"), `${cls} stroke w3`) + path(line_("q"), `${cls} stroke w3 dashed`);
    }
    const now = run_?.moments.at(-1),
      last_ = now ?? { q: facts.rail[name].believed[0].at(-1), earned: facts.rail[name].earned[0].at(-1) };
    out += text(x + w - 6, y + 14 + h - 8, `predicts ${show(last_.q, 1)}, earns ${show(last_.earned, 1)}`, "ink s b num end");
  });
  const foot = narrow ? 420 : 252;
  return {
    width: W,
    height: foot + 12,
    name: "Two learners, side by side",
    description: "DDPG and TD3 learn to hold a cart; for each, what its critic predicts and what its policy earns, over training.",
    inside: out + beliefKey(46, foot, narrow, true),
  };
}
function liveRender() {
  if (!facts.race) return;
  put("live-stage", svgOf(liveDraw($("live-stage").clientWidth < narrowAt ? 360 : 640), "", "", "live"));
  const update = Math.min(...LEARNERS.map(([name]) => live.runs[name]?.update ?? 0));
  $("live-says").textContent = live.running
    ? `training here, seed ${LIVE_SEED}: update ${group(update)} of ${group(RACE_UPDATES)}; pale: ${recordedSeeds()} recorded seeds`
    : update
      ? `trained here, seed ${LIVE_SEED}, ${group(update)} updates; pale: ${recordedSeeds()} recorded seeds`
      : `${recordedSeeds()} recorded seeds, mean and 95 % interval`;
  $("live-toggle").textContent = live.running ? "Pause" : update && update < RACE_UPDATES ? "Go on" : "Train it here";
}
function liveStart() {
  const source =
      `${makeTrainer.toString()};let T, going = true, changes; onmessage = ({ data }) => {` +
      `if (data === "pause" || data === "go") { going = data === "go"; return; }` +
      `const [setup, list, seed, updates, each] = data; T = makeTrainer(setup, list, seed); let u = 0;` +
      `const moments = [T.measure()]; const tick = () => { if (going) { for (let j = 0; j < each && u < updates; j++) {` +
      `T.step(); u++; if (u % 100 === 0) moments.push(T.measure()); }` +
      `postMessage({ update: u, cart: T.cart(), moments: moments.splice(0) }); } if (u < updates) setTimeout(tick, 33); }; tick(); };`,
    url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  let frame = 0;
  live.running = true;
  live.workers = LEARNERS.map(([name]) => {
    const worker = new Worker(url);
    live.runs[name] = { update: 0, cart: [0, 0], moments: [] };
    worker.onmessage = ({ data }) => {
      const run_ = live.runs[name];
      Object.assign(run_, { update: data.update, cart: data.cart });
      run_.moments.push(...data.moments);
      if (LEARNERS.every(([each]) => live.runs[each].update >= RACE_UPDATES)) live.running = false;
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        liveRender();
      });
    };
    worker.postMessage([raceSetup(), name === "td3" ? [] : [name], LIVE_SEED, RACE_UPDATES, 8]);
    return worker;
  });
}
function liveToggle() {
  const ended = LEARNERS.every(([name]) => (live.runs[name]?.update ?? 0) >= RACE_UPDATES);
  if (!live.workers.length || ended) {
    live.workers.forEach((worker) => worker.terminate());
    liveStart();
  } else {
    live.running = !live.running;
    live.workers.forEach((worker) => worker.postMessage(live.running ? "go" : "pause"));
  }
  liveRender();
}

// The six screens: predict, see it run, read why.
const guesses = new Map();
let screenTime = 1,
  screenFrame = 0;
function blurDraw(t, W) {
  const narrow = W < narrowAt,
    q = noisyCritic(1007, 1),
    { target_policy_noise: sigma, target_noise_clip: clip } = facts.settings,
    at = (j) => -1 + (2 * j) / (TOY_POINTS - 1),
    soft = q.map((_, j) => {
      let sum = 0,
        all = 0;
      for (let d = -clip; d <= clip; d += 0.02) {
        const weight = Math.exp((-d * d) / (2 * sigma * sigma)),
          place = Math.max(0, Math.min(TOY_POINTS - 1, ((at(j) + d + 1) / 2) * (TOY_POINTS - 1))),
          low = Math.floor(Math.min(place, TOY_POINTS - 2));
        sum += weight * (q[low] + (place - low) * (q[low + 1] - q[low]));
        all += weight;
      }
      return sum / all;
    }),
    A = axes(44, 30, W - 60 - (narrow ? 0 : 90), 230, [-1, 1], spanOf([q], 0.2), { xlabel: "action", ylabel: "Q-value" }),
    line_ = (values) => points(Array.from(values, (v, j) => [A.X(at(j)), A.Y(v)])),
    mixed = q.map((v, j) => mix(v, soft[j], phase(t, 0.2, 0.9))),
    pick = q.indexOf(Math.max(...q));
  return {
    width: W,
    height: 310,
    name: "A target that is read at noisy actions",
    description: "A critic's curve with a peak, and its mean over clipped noise: the peak is lower.",
    inside:
      A.svg + path(line_(q), "c1 stroke w1 faint") + path(line_(mixed), "c1 stroke w3") +
      marks.diamond(A.X(at(pick)), A.Y(mixed[pick]), 6, "actor fill edge") +
      text(44, 304, `at the pick: ${show(q[pick], 2)} alone, ${show(soft[pick], 2)} over the noise`, "ink s num"),
  };
}
const SCREEN_DRAWINGS = {
  early: (t, W) => {
    const P = belief(52, 34, W - 80, 220, `TD3, ${recordedSeeds()} seeds`, facts.rail.td3, facts.rail.steps, [-100, 5], "c1", { best: facts.rail.best, to: 1500, upto: 1500 * t });
    return { width: W, height: 310, name: "Belief and earnings of a new learner", description: "What TD3 predicts and what it earns in its first 1,500 updates.", inside: P.svg + beliefKey(52, 304, W < narrowAt, true) };
  },
  climb: (t, W) => filmDraw({ at: t, named: 0 }, W),
  loop: (t, W) => toyDraw(1, state.draw, t, W),
  minimum: (t, W) => toyDraw(state.toy, state.draw, t, W),
  blur: blurDraw,
  lag: (t, W) => {
    const S = { ...fresh(), step: 14 };
    return { width: W, height: 250, name: "A weight and its target in time", description: "The target follows the weight late.", inside: lagPlot(run(start, S.pokes), S, t, W, 30, 180, "actor", "actor", W < narrowAt ? "a weight and its target" : "one weight of the actor and its target, update by update") };
  },
};
function storyRender() {
  if (!facts.race) return;
  const screen = lessons.screens[state.screen - 1],
    guess = guesses.get(state.screen),
    W = $("screen-stage").clientWidth < narrowAt ? 360 : 640;
  document.querySelectorAll("[data-screen]").forEach((b) => {
    if (+b.dataset.screen === state.screen) b.setAttribute("aria-current", "step");
    else b.removeAttribute("aria-current");
  });
  put("screen-title", `<b>${state.screen}</b>${esc(screen.title)}`);
  put("screen-text", esc(screen.text));
  put("screen-question", screen.question);
  put("screen-options", screen.options.map((option, j) => `<button data-guess="${j}" aria-pressed="${guess === j}">${esc(option)}</button>`).join(""));
  put("screen-because", guess === undefined ? "" : `<b>${guess === screen.right ? "Right." : `Not quite: ${esc(screen.options[screen.right])}.`}</b> ${screen.because}`);
  put("screen-stage", guess === undefined ? '<p class="hint">Answer, and it runs.</p>' : svgOf(SCREEN_DRAWINGS[screen.drawing](screenTime, W), "", "", "screen"));
  $("toy-poke").hidden = guess === undefined || screen.drawing !== "minimum";
  $("toy-n").value = state.toy;
  $("toy-out").textContent = state.toy;
  $("screen-next").textContent = state.screen < lessons.screens.length ? "Next screen" : "To the instrument: one update in fifteen steps";
}
function screenRun() {
  cancelAnimationFrame(screenFrame);
  const begun = performance.now();
  screenTime = calm ? 1 : 0;
  const tick = (now) => {
    screenTime = Math.min(1, (now - begun) / 4000);
    storyRender();
    if (screenTime < 1) screenFrame = requestAnimationFrame(tick);
  };
  if (!calm) screenFrame = requestAnimationFrame(tick);
  storyRender();
}
function storyBegin() {
  if (!facts.race) return ["opening", "story", "evidence", "exercises"].forEach((id) => $(id).remove());
  $("screens").innerHTML = lessons.screens.map(({ title }, j) => `<button data-screen="${j + 1}">${j + 1} ${esc(title)}</button>`).join("");
  $("story").addEventListener("click", (event) => {
    const d = event.target.closest("button")?.dataset ?? {};
    if (d.screen) {
      state.screen = +d.screen;
      screenTime = 1;
      render();
    } else if (d.guess) {
      guesses.set(state.screen, +d.guess);
      screenRun();
      document.querySelector(`[data-guess="${d.guess}"]`).focus();
    }
  });
  $("screen-next").onclick = () => {
    if (state.screen === lessons.screens.length) return $("steps").scrollIntoView({ behavior: calm ? "auto" : "smooth" });
    state.screen += 1;
    screenTime = 1;
    render();
  };
  $("live-toggle").onclick = liveToggle;
  bodiesRender();
  liveRender();
  exercisesBegin();
  // In motion from the start, unless the reader asked for stillness or came for a moment further down.
  if (!calm && !location.hash) liveToggle();
}

// The four bodies: belief and earnings of both learners, from this project's stored rows.
function bodiesDraw(W) {
  const narrow = W < narrowAt,
    names = Object.keys(facts.bodies),
    w = narrow ? W - 62 : (W - 136) / 2,
    h = 130;
  let out = "";
  names.forEach((body, j) => {
    const x = narrow ? 52 : 52 + (j % 2) * (w + 68),
      y = 34 + (narrow ? j : Math.floor(j / 2)) * 204,
      row = facts.bodies[body],
      all = ["td3", "ddpg"].flatMap((who) => [...row[who].believed, ...row[who].earned].flat()).filter(Number.isFinite),
      range = spanOf([[0, ...all]], 0.04);
    out += text(x, y - 8, body, "ink s b");
    const thousands = (data) => data.steps.map((v) => v / 1000);
    ["ddpg", "td3"].forEach((who, k) => {
      out += belief(x, y, w, h, "", row[who], thousands(row[who]), range, who === "ddpg" ? "ddpg" : "c1", { xlabel: "thousand env steps", bare: k > 0 }).svg;
    });
  });
  const foot = 34 + (narrow ? 4 : 2) * 204;
  return {
    width: W,
    height: foot + 10,
    name: "Belief and earnings on four bodies",
    description: "For Hopper, Walker2d, Ant and HalfCheetah: what critic 1 predicts and what the policy earns, of DDPG and TD3, with intervals.",
    inside: out + beliefKey(52, foot, narrow, false) + text(narrow ? 230 : 262, foot, "DDPG", "ddpg-ink s b") + text(narrow ? 280 : 312, foot, "TD3", "c1-ink s b"),
  };
}
function bodiesRender() {
  if (facts.race) put("bodies-stage", svgOf(bodiesDraw($("bodies-stage").clientWidth < narrowAt ? 360 : 640), "", "", "bodies"));
}

// Over the whole training, below step 15: of Rail's ten seeds, or the learning curve of a run of the reader's own.
function overDraw(W) {
  const narrow = W < narrowAt,
    here = facts.updates[state.u];
  if (!facts.truth) {
    const steps_ = array("curve.env_steps"),
      values_ = array("curve.td3_return"),
      A = axes(64, 20, W - 84, 160, [steps_[0], Math.max(steps_.at(-1), steps_[0] + 1)], spanOf([values_], 0.1), { xlabel: "env steps", ylabel: "return of the run's evaluations" });
    return { width: W, height: 224, name: "Learning curve", description: "Return over env steps.", inside: A.svg + path(points(Array.from(values_, (v, j) => [A.X(steps_[j]), A.Y(v)])), "c1 stroke w2") + (values_.length < 2 ? marks.dot(A.X(steps_[0]), A.Y(values_[0]), 3, "c1 fill") : "") };
  }
  const w = narrow ? W - 60 : (W - 128) / 2,
    out = LEARNERS.map(([name, title, cls], j) => {
      const x = narrow ? 46 : 46 + j * (w + 56),
        y = narrow ? 34 + j * 220 : 34,
        P = belief(x, y, w, 150, title.split(":")[0], facts.rail[name], facts.rail.steps, RAIL_RANGE, cls, { best: facts.rail.best }),
        marked = name === "td3" ? facts.updates.filter((_, u) => u % 2).map((n) => marks.diamond(P.A.X(n), y + 150, 4, n - here < 2 && n >= here ? "actor fill edge" : "ink fill edge")).join("") : "";
      return P.svg + marked;
    }).join(""),
    foot = narrow ? 466 : 250;
  return {
    width: W,
    height: foot + 26,
    name: "Predicted and earned on Rail over training",
    description: "For DDPG and TD3: what critic 1 predicts for 64 starts, what the policy earns from them, and the best possible; means with 95 % intervals.",
    inside: out + beliefKey(46, foot, narrow, true) + text(46, foot + 18, narrow ? "◆ updates to open; above 0: impossible" : "◆ updates that can be opened; shaded top: no reward is above 0", "soft s"),
  };
}
function overRender() {
  put("over-stage", svgOf(overDraw($("over-stage").clientWidth < narrowAt ? 360 : 640), "", "", "over"));
  if (!facts.truth) $("over-says").hidden = true;
}

// The film: critic 1's curve in one state, its target as a ghost, y as a star, the actor's action climbing.
function filmDraw(S, W) {
  const narrow = W < narrowAt,
    frames = has("film.y") ? array("film.y").length : 0,
    H = narrow ? 400 : 420;
  if (!frames) return { width: W, height: 60, name: "Film", description: "", inside: text(10, 30, "This run has no film.", "soft s") };
  const at = S.at * (frames - 1),
    low = Math.min(frames - 2, Math.floor(at)),
    between_ = (values, size, k) => mix(values[low * size + k], values[(low + 1) * size + k], at - low),
    curve_ = (name) => Float64Array.from({ length: GRID }, (_, k) => between_(array(name), GRID, k)),
    [q, ghost, y] = [curve_("film.q"), curve_("film.target"), between_(array("film.y"), 1, 0)],
    [pi, , stored] = [0, 1, 2].map((k) => between_(array("film.action"), 3, k)),
    A = axes(52, 34, W - 78, H - 130, [facts.low[0], facts.high[0]], spanOf([array("film.q"), array("film.y"), array("film.target")], 0.08), { xlabel: "action (force)", ylabel: "Q-value in one state" }),
    x = A.X(pi),
    top = A.Y(between(q, pi)),
    named = phase(S.named, 0, 0.3),
    label = (px, py, said, cls) => `<g opacity="${fix(named)}">${text(px, py, said, `${cls} s b`)}</g>`;
  return {
    width: W,
    height: H,
    name: "Film: a critic is fitted, an actor climbs",
    description: "Critic 1's curve bends to y at the stored action, its target follows late, and the actor's action climbs the curve.",
    inside:
      impossible(52, 34, W - 78, A, [-9, 9].map((v, j) => (j ? Math.max(0, ...array("film.target")) : v))).replace(/<text.*/, "") +
      A.svg.replace('class="panel"', 'class="panel clear"') +
      path(trace(ghost, A), "c1 stroke w2 dashed faint") +
      path(trace(q, A), "c1 stroke w4") +
      line(A.X(stored), A.Y(between(q, stored)), A.X(stored), A.Y(y), "gradient-thin stroke dashed") +
      marks.star(A.X(stored), A.Y(y), 11, "ystar") +
      line(x, top, x, H - 96, "actor stroke thin") +
      marks.diamond(x, H - 96, 7, "actor fill edge") +
      marks.dot(x, top, 7, "actor fill edge") +
      label(A.X(stored) - 24, A.Y(y) - 14, "y", "ink") +
      label(60, A.Y(q[0]) - 10, "critic 1", "c1-ink") +
      label(60, A.Y(ghost[0]) - 8, "its target", "c1-ink") +
      label(Math.min(x + 12, W - 110), top + 26, "the actor", "actor-ink") +
      text(W - 26, 22, `update ${group(facts.film + Math.round(at))}`, "soft s num end") +
      (S.caption === undefined ? "" : text(W / 2, H - 18, S.caption, "ink cap mid")),
  };
}

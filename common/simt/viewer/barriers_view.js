// Barriers with their counts and phases, and what is under way.

class BarriersView {
  constructor(player) {
    this.player = player;
    this.root = byId("barriers");
    const { trace } = player;
    this.steps = []; // at a barrier, or of the engine
    for (let step = 0; step < trace.count; ++step) {
      if (trace.warp[step] === ENGINE || trace.siteOf(step).barrier !== undefined) this.steps.push(step);
    }
  }

  /// Each barrier's count when step `at` is done.
  counts(at) {
    const { trace } = this.player;
    const all = trace.barriers.map(({ kind }) => ({ expected: kind === "block" ? trace.threads : 0, come: 0, phase: 0, bytes: 0, flying: 0 }));
    const endIfComplete = (own) => {
      if (own.expected > 0 && own.come >= own.expected && own.flying === 0) Object.assign(own, { come: 0, phase: own.phase + 1, bytes: 0 });
    };
    for (const step of this.steps) {
      if (step > at) break;
      if (trace.warp[step] === ENGINE) {
        const start = trace.works[trace.number[step]].steps[0];
        const own = all[trace.siteOf(start).barrier];
        if (own) {
          own.flying -= 1;
          own.come >= own.expected && endIfComplete(own);
        }
        continue;
      }
      const { operation, barrier } = trace.siteOf(step);
      const own = all[barrier];
      const lanes = popcount(trace.lanes(step));
      if (operation === "mbarrier_init") own.expected = trace.number[step];
      else if (LOADING.has(operation)) own.flying += 1;
      else if (operation !== "mbarrier_wait") own.come += lanes;
      if (operation === "mbarrier_expect_tx") own.bytes += trace.base2[step];
      if (own.expected === 0 && trace.endedBy[step] === step) Object.assign(own, { come: 0, phase: own.phase + 1 });
      endIfComplete(own);
    }
    return all;
  }

  draw() {
    if (this.root.hidden || this.root.clientWidth === 0) return;
    const { trace, names, words, at } = this.player;
    const waiting = new Map();
    for (let warp = 0; warp < trace.warps; ++warp) {
      const { state, step } = words.state(warp, at);
      if (state !== "waiting") continue;
      const { barrier } = trace.siteOf(step);
      waiting.set(barrier, [...(waiting.get(barrier) ?? []), warp]);
    }
    const rows = this.counts(at).map((own, i) => {
      const of = own.expected ? ` of ${own.expected}` : "";
      const cells = [names.barrier(i), `${own.phase}`, `${own.come}${of}`, own.bytes || own.flying ? `${own.bytes.toLocaleString("en")} bytes expected, ${plural(own.flying, "load")} under way` : "", spans(waiting.get(i) ?? [])];
      return make("tr", {}, ...cells.map((text) => make("td", {}, text)));
    });
    const heads = ["barrier", "phase", "arrivals", "copies", "warps that wait"].map((text) => make("th", {}, text));
    const works = this.player.memory.underWay(at).slice(0, 40).map((work) => {
      const tile = words.shared(trace.sharedPieces(work.steps[0]));
      const end = work.end < 0 ? "nothing ends it" : this.player.link(work.end, `until step ${work.end.toLocaleString("en")}`);
      return make("li", {}, `${work.kind} of warp ${work.warp}, ${tile}: `, this.player.link(work.steps[0], `from step ${work.steps[0].toLocaleString("en")} `), end);
    });
    this.root.replaceChildren(
      make("h2", {}, "Barriers"),
      trace.barriers.length ? make("table", { className: "plain" }, make("tr", {}, ...heads), ...rows) : make("p", {}, "None so far."),
      make("h2", {}, "Under way"),
      works.length ? make("ul", {}, ...works) : make("p", { className: "note" }, "No copy and no product is under way."),
    );
  }
}

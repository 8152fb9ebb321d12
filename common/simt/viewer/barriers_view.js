// Barriers with their counts and phases, and what is under way.

class BarriersView {
    constructor(player) {
        this.player = player;
        this.root = byId("barriers");
        const {trace} = player;
        this.steps = []; // at a barrier, or of the engine
        for (let step = 0; step < trace.count; ++step) {
            if (trace.warp[step] === ENGINE || trace.siteOf(step).barrier !== undefined)
                this.steps.push(step);
        }
    }

    /// Each barrier's count when step `at` is done.
    counts(at) {
        const {trace} = this.player;
        const all = trace.barriers.map(({kind}) => ({
                                           expected: kind === "block" ? trace.threads : 0,
                                           come: 0,
                                           announced: new Map(),
                                           phase: 0,
                                           bytes: 0,
                                           landed: 0,
                                           loads: 0
                                       }));
        for (const step of this.steps) {
            if (step > at)
                break;
            if (trace.warp[step] === ENGINE)
                this.land(all, trace.works[trace.number[step]]);
            else
                this.count(all[trace.siteOf(step).barrier], step);
        }
        return all;
    }

    count(own, step) {
        const {trace} = this.player;
        const {operation} = trace.siteOf(step);
        const lanes = popcount(trace.lanes(step));
        const warp = trace.warp[step];
        if (operation === "mbarrier_init")
            own.expected = trace.number[step];
        else if (LOADING.has(operation))
            own.loads += 1;
        else if (operation === "cp_async_mbarrier_arrive")
            own.announced.set(warp, (own.announced.get(warp) ?? 0) + lanes);
        else if (operation !== "mbarrier_wait")
            own.come += lanes;
        if (operation === "mbarrier_expect_tx")
            own.bytes += trace.base2[step];
        if (own.expected === 0 && trace.endedBy[step] === step)
            Object.assign(own, {come: 0, phase: own.phase + 1});
        this.end(own);
    }

    /// What has landed counts at its mbarrier: bytes of TMA, and arrivals that follow cp.async.
    land(all, work) {
        const {trace} = this.player;
        const own = all[trace.siteOf(work.steps[0]).barrier];
        if (own) {
            own.loads -= 1;
            own.landed += trace.bytesOf(work.steps[0]);
            this.end(own);
            return;
        }
        for (const one of all) {
            one.come += one.announced.get(work.warp) ?? 0;
            one.announced.delete(work.warp);
            this.end(one);
        }
    }

    end(own) {
        if (own.expected > 0 && own.come >= own.expected && own.landed === own.bytes) {
            Object.assign(own, {come: 0, phase: own.phase + 1, bytes: 0, landed: 0});
        }
    }

    draw() {
        if (this.root.hidden || this.root.clientWidth === 0)
            return;
        const {trace, names, words, at} = this.player;
        const waiting = new Map();
        for (let warp = 0; warp < trace.warps; ++warp) {
            const {state, step} = words.state(warp, at);
            if (state !== "waiting")
                continue;
            const {barrier} = trace.siteOf(step);
            waiting.set(barrier, [...(waiting.get(barrier) ?? []), warp ]);
        }
        const rows = this.counts(at).map((own, i) => {
            const of = own.expected ? ` of ${own.expected}` : "";
            const cells = [
                names.barrier(i), `${own.phase}`, `${own.come}${of}`,
                own.bytes || own.loads
                    ? `${(own.bytes - own.landed).toLocaleString("en")} bytes are missing, ${
                          plural(own.loads, "load")} under way`
                    : "",
                spans(waiting.get(i) ?? [])
            ];
            return make("tr", {}, ...cells.map((text) => make("td", {}, text)));
        });
        const heads = [ "barrier", "phase", "arrivals", "copies", "warps that wait" ].map(
            (text) => make("th", {}, text));
        const works = this.player.memory.underWay(at).slice(0, 40).map((work) => {
            const tile = words.shared(trace.sharedPieces(work.steps[0]));
            const end =
                work.end < 0
                    ? "nothing ends it"
                    : this.player.link(work.end, `until step ${work.end.toLocaleString("en")}`);
            return make(
                "li", {}, `${work.kind} of warp ${work.warp}, ${tile}: `,
                this.player.link(work.steps[0], `from step ${work.steps[0].toLocaleString("en")} `),
                end);
        });
        this.root.replaceChildren(
            make("h2", {}, "Barriers"),
            trace.barriers.length
                ? make("table", {className: "plain"}, make("tr", {}, ...heads), ...rows)
                : make("p", {}, "None so far."),
            make("h2", {}, "Under way"),
            works.length ? make("ul", {}, ...works)
                         : make("p", {className: "note"}, "No copy and no product is under way."),
        );
    }
}

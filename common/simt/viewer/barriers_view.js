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
        this.arrivals = this.arrivalsOfCopies();
    }

    /// Of each work of cp.async the arrival that waits for it, if it is one: the step by which its
    /// warp closes the work.
    arrivalsOfCopies() {
        const {trace} = this.player;
        const found = new Map();
        for (const work of trace.works) {
            if (work.kind !== "cp.async" || work.steps.length === 0)
                continue;
            const list = trace.ofWarp[work.warp];
            let place = trace.lastOfWarp(work.warp, work.steps[work.steps.length - 1]);
            while (place < list.length && !CLOSING.has(trace.operation(list[place])))
                ++place;
            if (place < list.length && trace.operation(list[place]) === "cp_async_mbarrier_arrive")
                found.set(work, list[place]);
        }
        return found;
    }

    /// Each barrier's count when step `at` is done.
    counts(at) {
        const {trace} = this.player;
        const followers = new Set(this.arrivals.values());
        const all = trace.barriers.map(({kind}) => ({
                                           expected: kind === "block" ? trace.threads : 0,
                                           come: 0,
                                           announced: 0,
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
                this.count(all[trace.siteOf(step).barrier], step, followers.has(step));
        }
        return all;
    }

    /// `follows`: it is an arrival that waits for copies.
    count(own, step, follows) {
        const {trace} = this.player;
        const {operation} = trace.siteOf(step);
        const lanes = popcount(trace.lanes(step));
        if (operation === "mbarrier_init")
            own.expected = trace.number[step];
        else if (LOADING.has(operation))
            own.loads += 1;
        else if (follows)
            own.announced += lanes;
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
        const arrival = this.arrivals.get(work);
        if (arrival !== undefined) {
            const follower = all[trace.siteOf(arrival).barrier];
            const lanes = popcount(trace.lanes(arrival));
            follower.announced -= lanes;
            follower.come += lanes;
            this.end(follower);
        }
    }

    end(own) {
        if (own.expected > 0 && own.come >= own.expected && own.landed === own.bytes) {
            Object.assign(own, {come: 0, phase: own.phase + 1, bytes: 0, landed: 0});
        }
    }

    /// What a phase still needs that copies bring.
    missing(own) {
        if (own.announced)
            return `${plural(own.announced, "arrival")} will follow copies under way`;
        if (own.bytes || own.loads)
            return `${(own.bytes - own.landed).toLocaleString("en")} bytes are missing, ${
                plural(own.loads, "load")} under way`;
        return "";
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
        const parity = (own, i) => (trace.barriers[i].kind === "mbarrier" ? own.phase % 2 : "");
        const rows = this.counts(at).map((own, i) => {
            const of = own.expected ? ` of ${own.expected}` : "";
            const cells = [
                names.barrier(i), `${own.phase}`, `${parity(own, i)}`, `${own.come}${of}`,
                this.missing(own), spans(waiting.get(i) ?? [])
            ];
            return make("tr", {}, ...cells.map((text) => make("td", {}, text)));
        });
        const heads = [
            "barrier", "in phase", "parity", "arrivals", "copies", "warps that wait for its end"
        ].map((text) => make("th", {}, text));
        const works = this.player.memory.underWay(at).slice(0, 40).map((work) => {
            const tile = words.shared(trace.sharedPieces(work.steps[0]));
            const end =
                work.end < 0
                    ? "nothing ends it"
                    : this.player.link(work.end, `until step ${work.end.toLocaleString("en")}`);
            return make(
                "li", {}, `${work.kind} of warp ${work.warp}, ${tile}: `,
                this.player.link(work.steps[0], `from step ${work.steps[0].toLocaleString("en")}`),
                " ", end);
        });
        this.root.replaceChildren(
            make("h2", {}, "Barriers"),
            trace.barriers.length
                ? make("table", {className: "plain"}, make("tr", {}, ...heads), ...rows)
                : make("p", {}, "None so far."),
            trace.barriers.some(({kind}) => kind === "mbarrier") ? make("p", {}, PHASES) : "",
            make("h2", {}, "Under way"),
            works.length ? make("ul", {}, ...works)
                         : make("p", {className: "note"}, "No copy and no product is under way."),
        );
    }
}

const CLOSING = new Set([ "cp_async_commit", "cp_async_mbarrier_arrive" ]);
const PHASES =
    "A phase of an mbarrier ends when all of its arrivals have come and all announced bytes have " +
    "landed. Then the next phase begins, with no arrivals. A wait names the parity, 0 or 1, of " +
    "the phase whose end it waits for.";

// The player: where in the run we are, and what shows it.

class Player {
    constructor(document) {
        this.trace = new Trace(document.trace);
        this.sources = document.sources;
        this.title = document.title;
        this.beside = document.beside; // the page of the other block of a race
        this.names = new Names(this.trace);
        this.costs = new Costs(this.trace);
        this.memory = new SharedMemory(this.trace);
        this.words = new Words(this.trace, this.names, this.costs);
        this.moments = new Moments(this.trace, this.names, this.costs);
        this.at = 0;
        this.warp = -1; // that is followed; -1: all
        this.playing = false;
        this.notice = "";
        readPalette();
        this.head();
        this.views = [
            SourceView, WarpsView, SharedView, TensorsView, FragmentsView, BarriersView,
            TimelineView
        ].map((View) => new View(this));
        this.controls = new Controls(this);
        this.tabs = new Tabs(this);
        addEventListener("resize", () => this.draw());
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
            readPalette();
            this.draw();
        });
        addEventListener("hashchange", () => this.followAddress());
        if (!this.followAddress())
            this.go(this.trace.faultStep() ?? 0, false);
    }

    head() {
        const {run, fault, count} = this.trace;
        byId("title").textContent = this.title;
        const [x, y, z] = run.index;
        byId("about").textContent = `${run.kernel}, block (${x}, ${y}, ${z}) of ${
            run.grid.join(" x ")}: ${plural(this.trace.threads, "thread")}, ${
            plural(count, "step")}. One step is one instruction of one warp.`;
        if (fault) {
            const verdict = byId("verdict");
            verdict.hidden = false;
            verdict.append(make("strong", {}, fault.summary), "\n");
            for (const place of [fault.other, fault.where]) {
                if (!place)
                    continue;
                const text = `thread (${place.thread.join(",")}) ${place.action}, ${
                    this.trace.files[place.file]}:${place.line}`;
                const href = `${this.beside}#${place === fault.other ? "other" : "fault"}`;
                const elsewhere =
                    this.beside ? make("a", {href}, `${text} (its block's own page)`) : text;
                verdict.append(
                    place.step === undefined ? elsewhere : this.link(place.step, text), "\n");
            }
            if (fault.other)
                verdict.append(
                    "Nothing orders the two: no barrier, phase or wait of both lies between.\n");
            if (fault.hint)
                verdict.append(fault.hint);
        }
    }

    followAddress() {
        const [moment, tab] = location.hash.slice(1).split("&");
        if (!moment)
            return false;
        if (tab in this.tabs.names)
            this.tabs.choose(tab);
        const step = this.moments.find(moment);
        this.notice = step < 0 ? `Nothing in this run is called #${moment}. ` : "";
        return this.go(step, false);
    }

    /// Shows the moment after a step; returns whether there is such a step.
    go(step, noted = true) {
        if (step === undefined || step < 0 || step >= this.trace.count)
            return false;
        this.at = step;
        if (noted) {
            this.notice = "";
            clearTimeout(this.noting);
            this.noting = setTimeout(
                () => history.replaceState(null, "", `#step=${this.at}&${this.tabs.chosen}`), 200);
        }
        this.draw();
        return true;
    }

    draw() {
        if (this.drawing)
            return;
        this.drawing = requestAnimationFrame(() => {
            this.drawing = null;
            this.drawNow();
        });
    }

    drawNow() {
        byId("now").replaceChildren(this.notice, this.words.of(this.at), ...this.links());
        for (const view of this.views)
            view.draw();
        this.controls?.draw();
    }

    /// What this step has to do with others.
    links() {
        const {trace, at} = this;
        const found = [];
        const ended = trace.endedBy[at];
        if (trace.isWait(at)) {
            if (ended > at) {
                const who =
                    trace.warp[ended] === ENGINE ? "the copy engine" : `warp ${trace.warp[ended]}`;
                found.push(
                    " The wait ends with ",
                    this.link(ended, `what ${who} does at step ${ended.toLocaleString("en")}`),
                    ".");
            } else if (trace.waitEnd(at) === Infinity) {
                found.push(" Nothing ends this wait.");
            } else if (trace.operation(at) !== "wgmma") {
                found.push(trace.operation(at).startsWith("__sync")
                               ? " It is the last to come: all go on."
                               : " It goes on at once.");
            }
        }
        return found;
    }

    link(step, text) {
        const button = make("button", {className: "link", type: "button"}, text);
        button.onclick = () => this.go(step);
        return button;
    }

    nextOfLine(file, line) {
        const number = this.trace.lineNumber(file, line);
        const holds = (step) => this.trace.lineOf(step) === number;
        const next = this.moments.first(this.at, holds);
        return next >= 0 ? next : this.moments.first(-1, holds);
    }

    /// One step on (1) or back (-1): of the warp that is followed, or of any.
    step(direction, warp = this.warp) {
        if (warp < 0)
            return this.go(this.at + direction);
        const list = this.trace.ofWarp[warp];
        const place = this.trace.lastOfWarp(warp, this.at);
        return this.go(list[direction > 0             ? place + 1
                            : list[place] === this.at ? place - 1
                                                      : place]);
    }

    /// To the next step, or the one before, for which `holds`.
    seek(direction, holds) {
        for (let step = this.at + direction; step >= 0 && step < this.trace.count;
             step += direction) {
            if (holds(step))
                return this.go(step);
        }
        return false;
    }

    seekLine(direction) {
        const {trace} = this;
        const warp = this.warp >= 0 ? this.warp : trace.warp[this.at];
        const line = trace.lineOf(this.at);
        return this.seek(direction,
                         (step) => trace.warp[step] === warp && trace.lineOf(step) !== line);
    }
    seekBarrier(direction) {
        return this.seek(direction, (step) => this.moments.isBarrierEnd(step) ||
                                              this.trace.operation(step) === "named_barrier_sync");
    }
    seekConflict(direction) { return this.seek(direction, (step) => this.costs.extra[step] > 0); }
    seekWait(direction) { return this.seek(direction, (step) => this.moments.waits(step)); }

    play(on = !this.playing) {
        this.playing = on;
        clearTimeout(this.timer);
        const tick = () => {
            if (!this.playing)
                return;
            if (!this.step(1))
                this.playing = false;
            this.controls.draw();
            this.timer = setTimeout(tick, this.controls.pause);
        };
        if (on)
            tick();
        this.controls.draw();
    }
}

/// The source and the panels; on a narrow screen one at a time.
class Tabs {
    constructor(player) {
        this.player = player;
        this.root = byId("tabs");
        this.names = {
            source: "Source",
            warps: "Warps",
            shared: "Shared memory",
            tensors: "Tensors",
            fragments: "Fragments",
            barriers: "Barriers and copies"
        };
        this.buttons = {};
        for (const [id, text] of Object.entries(this.names)) {
            const button = make("button", {type: "button", aria: {controls: id}}, text);
            button.setAttribute("role", "tab");
            button.onclick = () => this.choose(id);
            button.onkeydown = (event) => this.key(event, id);
            this.root.append((this.buttons[id] = button));
            byId(id).setAttribute("role", "tabpanel");
        }
        this.narrow = matchMedia("(max-width: 899px)");
        this.narrow.addEventListener("change", () => this.choose(this.chosen));
        if (this.narrow.matches && player.trace.fault)
            this.choose("source");
        else
            this.choose(player.trace.shared.bytes ? "shared" : "tensors");
    }

    key(event, id) {
        const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
        if (!move)
            return;
        event.stopPropagation();
        const ids = Object.keys(this.names).filter((name) => !this.buttons[name].hidden);
        const next = ids[(ids.indexOf(id) + move + ids.length) % ids.length];
        this.choose(next);
        this.buttons[next].focus();
    }

    choose(id) {
        const always = this.narrow.matches ? [] : [ "source", "warps" ];
        if (this.narrow.matches)
            document.querySelector("main").before(this.root);
        else
            byId("warps").after(this.root);
        this.chosen = always.includes(id) ? "shared" : id;
        for (const name of Object.keys(this.names)) {
            const own = name === this.chosen;
            byId(name).hidden = !own && !always.includes(name);
            this.buttons[name].hidden = always.includes(name);
            this.buttons[name].setAttribute("aria-selected", String(own));
            this.buttons[name].tabIndex = own ? 0 : -1;
        }
        this.player.draw();
    }
}

unpack(byId("recording").textContent.trim()).then((document) => {
    window.player = new Player(document);
    performance.mark("ready");
});

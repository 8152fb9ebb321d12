// Threads as warps of 32 lanes: running, waiting (for what), or done.

class WarpsView {
    constructor(player) {
        this.player = player;
        this.root = byId("warps");
        const colours = [ [ "running", "blue" ], [ "waiting", "wait" ], [ "done", "grid" ] ];
        const keys = colours.map(
            ([ text, colour ]) => make(
                "span", {className: "key", style: {"--of": `var(--${colour})`}}, text + " "));
        this.grid = make("div", {className: player.trace.warps > 8 ? "warps many" : "warps"});
        this.root.append(make("h2", {}, "Warps ", make("span", {className: "note"}, ...keys)),
                         this.grid);
        this.items = Array.from({length: player.trace.warps}, (_, warp) => {
            const name = make("span", {className: "name"});
            const lanes = Array.from({length: 32}, () => make("i"));
            const button = make("button", {className: "warp", type: "button"}, name,
                                make("span", {className: "lanes"}, ...lanes));
            button.onclick = () => this.click(warp);
            return {name, lanes, button};
        });
        this.grid.append(...this.items.map(({button}) => button));
    }

    /// On a wait: to what ended it; else to the warp's next instruction.
    click(warp) {
        const {trace, at} = this.player;
        const {state, step} = this.player.words.state(warp, at);
        if (state === "waiting" && trace.endedBy[step] >= 0)
            this.player.go(trace.endedBy[step]);
        else
            this.player.go(trace.ofWarp[warp][trace.lastOfWarp(warp, at) + 1] ?? -1);
    }

    draw() {
        const {trace, at, words} = this.player;
        for (let warp = 0; warp < trace.warps; ++warp) {
            const {name, lanes, button} = this.items[warp];
            const {state, text, step} = words.state(warp, at);
            name.textContent = `${warp}  ${text}`;
            const colour = {running: "blue",
                            waiting: "wait",
                            done: "grid",
                            idle: "grid"}[state];
            button.style.setProperty("--of", `var(--${colour})`);
            button.classList.toggle("now", trace.warp[at] === warp);
            const active = step === undefined ? 0 : trace.lanes(step);
            button.title = `${text}; click: ${
                state === "waiting" ? "what ends this wait" : "this warp's next instruction"}`;
            lanes.forEach((lane, i) => lane.classList.toggle("off", !((active >>> i) & 1)));
        }
    }
}

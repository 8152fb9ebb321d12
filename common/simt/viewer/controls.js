// Buttons, the slider and keys.

class Controls {
    constructor(player) {
        this.player = player;
        this.root = byId("controls");
        const {trace} = player;
        const group = (...children) => make("span", {className: "group"}, ...children);
        this.playButton = this.button("play", "Play (space)", () => player.play());
        this.slider = make("input", {
            type: "range",
            id: "slider",
            min: 0,
            max: trace.count - 1,
            value: 0,
            aria: {label: "Step"}
        });
        this.slider.oninput = () => player.go(Number(this.slider.value));
        this.output = make("output");
        this.warps = make(
            "select", {aria: {label: "Whose steps"}, title: "Whose steps the buttons follow"},
            make("option", {value: -1}, "all warps"));
        for (let warp = 0; warp < trace.warps; ++warp)
            this.warps.append(make("option", {value: warp}, `warp ${warp}`));
        this.warps.onchange = () => (player.warp = Number(this.warps.value));
        this.speed =
            make("select", {className: "wide", aria: {label: "Speed"}},
                 ...[[ 1, 1000 ], [ 4, 250 ], [ 20, 50 ], [ 60, 16 ]].map(
                     ([ rate, pause ]) => make("option", {value: pause}, `${rate} a second`)));
        this.speed.value = "250";
        const seeks = [
            [ "line", "l", (way) => player.seekLine(way) ],
            [ "barrier", "b", (way) => player.seekBarrier(way) ],
            [ "wait", "w", (way) => player.seekWait(way) ],
            [ "conflict", "c", (way) => player.seekConflict(way) ],
        ];
        this.root.append(
            group(
                this.button("|\u25c0", "To the beginning (Home)", () => player.go(0)),
                this.button("\u25c0", "One step back (left arrow)", () => player.step(-1)),
                this.playButton,
                this.button("\u25b6", "One step on (right arrow)", () => player.step(1)),
                ),
            group(
                make("span", {className: "note wide", style: {"align-self": "center"}}, "next "),
                ...seeks.map(([ text, key, seek ]) => this.button(
                                 text, `The next ${text} (${key}; with Shift the one before)`,
                                 (event) => seek(event.shiftKey ? -1 : 1)))),
        );
        if (trace.fault)
            this.root.append(
                this.button("fault", "The fault (f)",
                            () => player.go(trace.faultStep() ?? trace.count - 1)));
        this.root.append(
            this.slider, this.output, this.warps, this.speed,
            this.button("?", "Keys and what the colours mean", () => this.help.showModal()));
        this.makeHelp();
        this.keys = {
            " ": () => player.play(),
            ArrowRight: (event) =>
                player.step(1, event.shiftKey ? trace.warp[player.at] : player.warp),
            ArrowLeft: (event) =>
                player.step(-1, event.shiftKey ? trace.warp[player.at] : player.warp),
            Home: () => player.go(0),
            End: () => player.go(trace.count - 1),
            f: () => player.go(trace.faultStep()),
            "?": () => this.help.showModal(),
        };
        for (const [, key, seek] of seeks) {
            this.keys[key] = () => seek(1);
            this.keys[key.toUpperCase()] = () => seek(-1);
        }
        addEventListener("keydown", (event) => this.key(event));
    }

    get pause() { return Number(this.speed.value); }

    button(text, label, act) {
        const button = make("button", {type: "button", title: label, aria: {label}}, text);
        button.onclick = act;
        return button;
    }

    key(event) {
        const {tagName} = event.target;
        const typed = tagName === "SELECT" ||
                      (tagName === "INPUT" && /Arrow|Home|End/.test(event.key)) ||
                      (event.key === " " && tagName === "BUTTON");
        if (typed || event.ctrlKey || event.metaKey || event.altKey || !(event.key in this.keys))
            return;
        event.preventDefault();
        this.keys[event.key](event);
    }

    makeHelp() {
        const rows = [
            [ "\u2190 \u2192", "one step back or on; with Shift, of the same warp" ],
            [ "space", "play, and stop" ],
            [
                "l b w c",
                "the next line of this warp, barrier, wait, conflict; with Shift the one before"
            ],
            [ "f", "the fault" ],
            [ "Home End", "the beginning, the end" ],
            [ "+ \u2212", "zoom, in the timeline" ],
            [
                "click",
                "on a line: its next execution; on a cell: who wrote it; on a waiting warp: " +
                "what ends its wait"
            ],
        ];
        this.help = make(
            "dialog",
            {aria: {label: "Help"}},
            make("table", {className: "plain"},
                 ...rows.map(([ keys, text ]) =>
                                 make("tr", {}, make("td", {}, make("kbd", {}, keys)),
                                      make("td", {}, text)))),
            make(
                "p", {className: "note"},
                "A step is one instruction of one warp; all of its lanes take part that come to " +
                "it. Warps take turns here, one instruction each, as far as barriers, phases " +
                "and copies let them. On a GPU they run at the same time, and how far each gets " +
                "is not fixed: read the picture as an order, not as time. A copy is shown to " +
                "land at the last moment at which it may. The address after # names this " +
                "moment, and can be sent to somebody: #barrier=3, #conflict=K and #wait=full.0 " +
                "work as well."),
            make("form", {method: "dialog"}, make("button", {}, "Close")),
        );
        document.body.append(this.help);
    }

    draw() {
        const {at, trace, playing} = this.player;
        this.slider.value = at;
        this.slider.setAttribute("aria-valuetext", `step ${at} of ${trace.count - 1}`);
        this.output.textContent =
            `step ${at.toLocaleString("en")} of ${(trace.count - 1).toLocaleString("en")}`;
        this.playButton.textContent = playing ? "stop" : "play";
        this.playButton.setAttribute("aria-pressed", String(playing));
    }
}

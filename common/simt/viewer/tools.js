// Small helpers: elements, colours, numbers.

function make(tag, properties = {}, ...children) {
    const {dataset, style, aria, ...others} = properties;
    const element = Object.assign(document.createElement(tag), others);
    Object.assign(element.dataset, dataset);
    for (const [name, value] of Object.entries(style ?? {}))
        element.style.setProperty(name, value);
    for (const [name, value] of Object.entries(aria ?? {}))
        element.setAttribute("aria-" + name, value);
    element.append(...children);
    return element;
}

const byId = (id) => document.getElementById(id);

/// The colours of the style sheet, as a canvas needs them.
let palette = {};
function readPalette() {
    const probe = make("i");
    document.body.append(probe);
    for (const name of ["page", "panel", "ink", "note", "grid", "blue", "orange", "green", "red",
                        "purple", "wait", "pale", "rest"]) {
        probe.style.color = `var(--${name})`;
        palette[name] = getComputedStyle(probe).color;
    }
    probe.remove();
    palette.dark = matchMedia("(prefers-color-scheme: dark)").matches;
}

function tint(name, strength = 1) {
    const light = palette.dark ? 22 + 20 * strength: 94 - 22 * strength;
    return `hsl(${hueOf(name)} ${palette.dark ? 45 : 60}% ${light}%)`;
}

const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

function shortNumber(value) {
    if (!Number.isFinite(value))
        return String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e6)
        return String(value);
    return value.toPrecision(4).replace(/\.?0+$/, "");
}

/// A canvas as large as it looks, on fine screens as well; returns its drawing context.
function fit(canvas, width, height) {
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) ||
        canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
        canvas.style.width = width + "px";
        canvas.style.height = height + "px";
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return context;
}

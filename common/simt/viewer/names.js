// What places are called: cells of shared memory, elements of tensors, barriers.

const TYPES = {
    float: {bytes: 4, read: (view) => view.getFloat32(0, true)},
    half: {bytes: 2, read: (view) => fromHalf(view.getUint16(0, true))},
    bfloat16: {bytes: 2, read: (view) => fromBfloat16(view.getUint16(0, true))},
    int: {bytes: 4, read: (view) => view.getInt32(0, true)},
    unsigned: {bytes: 4, read: (view) => view.getUint32(0, true)},
};

function fromHalf(bits) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    if (exponent === 31)
        return fraction ? NaN : sign * Infinity;
    return sign *
           (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : (2 ** -14 * fraction) / 1024);
}

function fromBfloat16(bits) {
    const view = new DataView(new ArrayBuffer(4));
    view.setUint32(0, bits << 16);
    return view.getFloat32(0);
}

class Names {
    constructor(trace) {
        this.trace = trace;
        // [{ name, at, bytes, type, rows, columns, stride, swizzle }], in the order of their places
        this.variables = [...trace.shared.variables ].sort((a, b) => a.at - b.at);
    }

    variableAt(address) {
        return this.variables.find(({at, bytes}) => address >= at && address < at + bytes);
    }

    /// { variable, row, column, type } of a byte of shared memory, the swizzle undone; null where
    /// nothing is known.
    element(address) {
        const variable = this.variableAt(address);
        if (!variable || !variable.columns)
            return variable ? {variable} : null;
        const {bytes} = TYPES[variable.type] ?? {bytes: variable.element ?? 4};
        let offset = address - variable.at;
        let half = 0;
        if (variable.swizzle) {
            const {row_bytes: rowBytes, rows} = variable.swizzle;
            half = Math.floor(offset / (rowBytes * rows));
            offset %= rowBytes * rows;
            const row = Math.floor(offset / rowBytes);
            const inRow = offset % rowBytes;
            const key = rowBytes < 128 ? (row >> 1) & 3 : row & 7;
            const chunk = (inRow >> 4) ^ key;
            const column = (half * rowBytes + chunk * 16 + (inRow & 15)) / bytes;
            return {variable, row, column: Math.floor(column)};
        }
        const stride = variable.stride ?? variable.columns;
        const index = Math.floor(offset / bytes);
        return {variable, row: Math.floor(index / stride), column: index % stride};
    }

    /// Where a byte of a tile with a swizzle would lie without it.
    unswizzled(address) {
        const {variable, row, column} = this.element(address);
        const {row_bytes: rowBytes, rows} = variable.swizzle;
        const offset = column * TYPES[variable.type].bytes;
        const half = Math.floor(offset / rowBytes);
        return variable.at + (half * rows + row) * rowBytes + (offset % rowBytes);
    }

    /// "K[3][17]", of one row "sums[17]", or "byte 128".
    cell(address) {
        const found = this.element(address);
        if (!found)
            return `byte ${address}`;
        const {variable, row, column} = found;
        if (row === undefined) {
            return variable.bytes <= 8 ? variable.name
                                       : `${variable.name}, byte ${address - variable.at}`;
        }
        return variable.rows === 1 ? `${variable.name}[${column}]`
                                   : `${variable.name}[${row}][${column}]`;
    }

    /// The name of the tensor or tile at an address, "K" of "K[3][17]".
    tile(address) { return this.variableAt(address)?.name ?? null; }

    barrier(number) {
        const {kind, at, number: id} = this.trace.barriers[number];
        if (kind === "block")
            return "the block's barrier";
        if (kind === "named")
            return `barrier ${id}`;
        return this.tile(at) ?? `the mbarrier at byte ${at}`;
    }

    /// The values in a cell of four bytes.
    values(bytes, cell) {
        const variable = this.variableAt(cell * CELL);
        const type = TYPES[variable?.type];
        if (!type)
            return null;
        const values = [];
        for (let offset = 0; offset < CELL; offset += type.bytes) {
            values.push(type.read(new DataView(bytes.buffer, cell * CELL + offset, type.bytes)));
        }
        return values;
    }
}

/// A hue for each tensor, the same in shared memory and in global memory.
const HUES = {
    Q: 212,
    K: 145,
    V: 32,
    P: 285,
    S: 285,
    O: 350,
    dO: 330,
    dQ: 200,
    dK: 160,
    dV: 50
};

function hueOf(name) {
    const letters = /^(d?[A-Z])(?![a-z])/.exec(name ?? "");
    if (letters && letters[1] in HUES)
        return HUES[letters[1]];
    let sum = 0;
    for (const char of name ?? "")
        sum = (sum * 31 + char.charCodeAt(0)) % 360;
    return sum;
}

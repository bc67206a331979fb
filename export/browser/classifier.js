// Classifies images in a browser:
//
//   import { classify } from "./pets/classifier.js";
//   const { top } = await classify(document.querySelector("img"));
//
// The model and its runtime, onnxruntime-web, are in the same folder. They are loaded once, by the
// first call of `classify` or before it by `load`. Images stay in the browser.

const facts = {{facts}};

// The names of the classes, in the order of `probabilities`.
export const classNames = facts.classNames;

let locate = (name) => new URL(name, import.meta.url).href;

// Sets where the files are: a function from a file's name to its URL, or to a promise of it.
export function locateFiles(function_) {
  locate = function_;
}

let loading = null;

// Loads the runtime and the model.
export function load() {
  loading ??= open().catch((error) => {
    loading = null;  // The next call tries again.
    throw error;
  });
  return loading;
}

async function open() {
  if (!globalThis.createImageBitmap || !globalThis.OffscreenCanvas) {
    throw new Error("classifier.js works in browsers only. In Node, transformers.js runs its folder.");
  }
  const ort = await import(await locate("ort.wasm.bundle.min.js"));
  ort.env.wasm.numThreads = 1;  // More need a server that isolates the page.
  ort.env.wasm.wasmBinary = await bytesOf("ort-wasm-simd-threaded.wasm");
  const session = await ort.InferenceSession.create(await bytesOf("model.onnx"));
  ort.env.wasm.wasmBinary = undefined;  // 14 MB, not needed again.
  return { ort, session };
}

async function bytesOf(name) {
  const response = await fetched(await locate(name));
  return new Uint8Array(await response.arrayBuffer());
}

async function fetched(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} cannot be loaded: ${response.status} ${response.statusText}`);
  return response;
}

const TAKEN = [
  "Blob", "File", "HTMLImageElement", "HTMLCanvasElement", "HTMLVideoElement", "OffscreenCanvas",
  "ImageBitmap", "ImageData", "VideoFrame", "String", "URL",
];

// Classifies an image: a Blob or File, an <img>, <canvas> or <video>, an ImageBitmap, or a URL.
//
// Returns
//   top            the five most probable classes, [{ class, probability }]
//   labels         names of the classes above their thresholds; only of multi-label models
//   probabilities  of all classes
//   attention      where the model looked, { values, height, width, box }; only of models that
//                  attend over all tokens. The values, row by row, are the share of each patch, and
//                  box is the part of the image that they cover: { x, y, width, height }, from 0
//                  to 1, beyond it where the model gets a padded image
//   milliseconds   the model's time
export async function classify(image) {
  const kind = Object.prototype.toString.call(image).slice("[object ".length, -1);
  if (!TAKEN.includes(kind)) {
    throw new TypeError(
      "classify takes a Blob or File, an <img>, <canvas> or <video>, an ImageBitmap, or a URL. "
      + `Received: ${kind}`);
  }
  const { ort, session } = await load();
  const { rgb, width, height } = await pixelsOf(image);
  const images = new ort.Tensor("uint8", rgb, [1, height, width, 3]);
  const start = performance.now();
  const answer = await session.run({ images });
  const milliseconds = performance.now() - start;
  if (!answer.valid.data[0]) throw new Error("The model gives no finite scores.");
  const probabilities = answer.probabilities.data;
  const order = classNames.map((_, index) => index).sort((a, b) => probabilities[b] - probabilities[a]);
  const top = order.slice(0, 5).map((index) => ({ class: classNames[index], probability: probabilities[index] }));
  const result = { top, probabilities, milliseconds };
  if (facts.thresholds) {
    const above = order.filter((index) => probabilities[index] > facts.thresholds[index]);
    result.labels = above.map((index) => classNames[index]);
  }
  if (answer.attention) {
    const [, rows, columns] = answer.attention.dims;
    result.attention = { values: answer.attention.data, height: rows, width: columns, box: seenBox(width, height) };
  }
  return result;
}

const ROWS = 256;  // Read at once: a canvas of a whole photo takes much memory, and Safari limits it.

// Returns the pixels of an image, { rgb, width, height }.
async function pixelsOf(image) {
  if (typeof image === "string" || image instanceof URL) image = await (await fetched(image)).blob();
  let bitmap;
  try {
    if (image.decode) await image.decode();  // Waits until an <img> is loaded.
    // The values in the file, as other programs read them, without its colour profile.
    bitmap = await bitmapOf(image, { colorSpaceConversion: "none" });
  } catch (error) {
    throw new Error(await reasonOf(image, error), { cause: error });
  }
  const { width, height } = bitmap;
  const rgb = new Uint8Array(3 * width * height);
  const strip = new OffscreenCanvas(width, Math.min(ROWS, height));
  const context = strip.getContext("2d", { willReadFrequently: true });
  context.globalCompositeOperation = "copy";
  for (let top = 0, to = 0; top < height; top += ROWS) {
    context.drawImage(bitmap, 0, -top);
    const { data } = context.getImageData(0, 0, width, Math.min(ROWS, height - top));
    for (let from = 0; from < data.length; from += 4) {
      rgb[to++] = data[from];
      rgb[to++] = data[from + 1];
      rgb[to++] = data[from + 2];
    }
  }
  bitmap.close();
  strip.width = 0;  // Frees its memory.
  return { rgb, width, height };
}

// Formats of photos that most browsers do not read, by the first bytes of a file.
const UNREADABLE = { HEIC: /^.{4}ftyp(hei|hev|mif1|msf1)/s, TIFF: /^(II\*\0|MM\0\*)/ };

async function reasonOf(image, error) {
  const start = image.slice ? await firstBytes(image) : "";
  for (const [format, first] of Object.entries(UNREADABLE)) {
    if (first.test(start)) return `This browser cannot read ${format} files: convert it to JPEG.`;
  }
  return `It cannot be read as an image. ${error.message}`;
}

{{bitmaps}}
// The part of an image that the model receives, in shares of its sides; more where it is padded.
export function seenBox(width, height, { keepsAspect, fits, resized, size } = facts.view) {
  const factor = (fits ? Math.min : Math.max)(resized[0] / height, resized[1] / width);
  if (fits) {  // In whole pixels, as Pillow's ImageOps.pad.
    const [rows, columns] = [height, width].map((length) => Math.max(rounded(length * factor), 1));
    const [top, left] = [size[0] - rows, size[1] - columns].map((rest) => rounded(rest / 2));
    return { x: -left / columns, y: -top / rows, width: size[1] / columns, height: size[0] / rows };
  }
  const [down, across] = [height, width].map((length, side) =>
    Math.min(1, size[side] / (keepsAspect ? length * factor : resized[side])));
  return { x: (1 - across) / 2, y: (1 - down) / 2, width: across, height: down };
}

// Halves become even numbers, as in Python.
function rounded(number) {
  return number % 1 === 0.5 ? 2 * Math.round(number / 2) : Math.round(number);
}

// Classifies images with the model that the page holds, in onnxruntime-web.

const facts = {{facts}};
const classNames = facts.classNames;  // In the order of `probabilities`.

// Returns the bytes of a file that this page holds compressed.
async function bytesOf(name) {
  const packed = Uint8Array.from(atob($(name).textContent.trim()), (c) => c.charCodeAt(0));
  $(name).remove();  // Its text is as large again.
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Loads the runtime and the model.
async function load() {
  const url = URL.createObjectURL(new Blob([await bytesOf("ort.wasm.bundle.min.mjs")], { type: "text/javascript" }));
  const ort = await import(url);
  URL.revokeObjectURL(url);
  ort.env.wasm.numThreads = 1;  // More need a server that isolates the page.
  ort.env.wasm.wasmBinary = await bytesOf("ort-wasm-simd-threaded.wasm");
  const session = await ort.InferenceSession.create(await bytesOf("model.onnx"));
  ort.env.wasm.wasmBinary = undefined;  // 14 MB, not needed again.
  return { ort, session };
}

const loading = load();

// Classifies an image, a File or Blob.
//
// Returns
//   top            the five most probable classes, [{ class, probability }]
//   labels         names of the classes above their thresholds; only of multi-label models
//   probabilities  of all classes
//   attention      where the model looked, { values, height, width, box }; only of models that
//                  attend over all tokens. The values, row by row, are the share of each patch, and
//                  box is the part of the image that they cover: { x, y, width, height }, from 0
//                  to 1
//   milliseconds   the model's time
async function classify(image) {
  const { ort, session } = await loading;
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
  if (facts.bitDepth < 16 && IS_16_BIT_PNG.test(await firstBytes(image))) {
    throw new Error(`A browser reads the high byte of 16-bit images alone; this model was trained on ` +
      `${facts.bitDepth} bits: convert it to 8 bits.`);
  }
  let bitmap;
  try {
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

const IS_16_BIT_PNG = /^\x89PNG.{20}\x10/s;

// Formats of photos that most browsers do not read, by the first bytes of a file.
const UNREADABLE = { HEIC: /^.{4}ftyp(hei|hev|mif1|msf1)/s, TIFF: /^(II\*\0|MM\0\*)/ };

async function reasonOf(image, error) {
  const start = await firstBytes(image);
  for (const [format, first] of Object.entries(UNREADABLE)) {
    if (first.test(start)) return `This browser cannot read ${format} files: convert it to JPEG.`;
  }
  return `It cannot be read as an image. ${error.message}`;
}

// By EXIF orientation, what turns a bitmap of w x h pixels upright: a matrix of a canvas.
const TURNS = {
  2: (w, h) => [-1, 0, 0, 1, w, 0],
  3: (w, h) => [-1, 0, 0, -1, w, h],
  4: (w, h) => [1, 0, 0, -1, 0, h],
  5: (w, h) => [0, 1, 1, 0, 0, 0],
  6: (w, h) => [0, 1, -1, 0, h, 0],
  7: (w, h) => [0, -1, -1, 0, h, w],
  8: (w, h) => [0, -1, 1, 0, 0, w],
};

// Returns an image as an ImageBitmap, upright. Browsers turn JPEG and PNG files by their EXIF
// orientation, but not WebP.
async function bitmapOf(image, options) {
  const { content, orientation } = await withoutOrientation(image);
  const bitmap = await createImageBitmap(content, options);
  if (orientation === 1) return bitmap;
  const { width, height } = bitmap;
  const canvas = orientation > 4 ? new OffscreenCanvas(height, width) : new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.setTransform(...TURNS[orientation](width, height));
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  const turned = canvas.transferToImageBitmap();
  canvas.width = 0;  // Frees its memory.
  return turned;
}

// Returns an image and its EXIF orientation, which is set to 1 (upright) in the file: no browser
// turns it, then. Orientations of images other than WebP files are 1.
async function withoutOrientation(image) {
  const unchanged = { content: image, orientation: 1 };
  if (!image.arrayBuffer) return unchanged;  // No file.
  if (!/^RIFF.{4}WEBPVP8X/s.test(await firstBytes(image))) return unchanged;
  const file = new DataView(await image.arrayBuffer());
  try {
    // Chunks: their name, size and content, of an even number of bytes.
    let at = 12;
    while (file.getUint32(at) !== 0x45584946) {  // "EXIF"
      const size = file.getUint32(at + 4, true);
      at += 8 + size + size % 2;
    }
    at += 8;
    if (file.getUint32(at) === 0x45786966) at += 6;  // "Exif", which some programs write before it.
    const little = file.getUint8(at) === 0x49;  // "II"
    const directory = at + file.getUint32(at + 4, little);
    for (let entry = directory + 2; ; entry += 12) {
      if (entry >= directory + 2 + 12 * file.getUint16(directory, little)) return unchanged;
      if (file.getUint16(entry, little) !== 0x0112) continue;
      const orientation = file.getUint16(entry + 8, little);
      if (!TURNS[orientation]) return unchanged;
      file.setUint16(entry + 8, 1, little);
      return { content: new Blob([file], { type: image.type }), orientation };
    }
  } catch (error) {
    if (error instanceof RangeError) return unchanged;  // The end of the file: no orientation.
    throw error;
  }
}

// Returns the first bytes of a file, as characters.
async function firstBytes(file) {
  return String.fromCharCode(...new Uint8Array(await file.slice(0, 32).arrayBuffer()));
}

// The part of an image that the model receives, in shares of its sides.
function seenBox(width, height, { keepsAspect, resized, size } = facts.view) {
  const factor = Math.max(resized[0] / height, resized[1] / width);
  const [down, across] = [height, width].map((length, side) =>
    Math.min(1, size[side] / (keepsAspect ? length * factor : resized[side])));
  return { x: (1 - across) / 2, y: (1 - down) / 2, width: across, height: down };
}

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
  return String.fromCharCode(...new Uint8Array(await file.slice(0, 16).arrayBuffer()));
}

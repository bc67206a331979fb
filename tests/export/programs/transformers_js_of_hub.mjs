// Prints what transformers.js answers with a repository:
//   node transformers_js_of_hub.mjs LIBRARY HUB NAME CACHE IMAGES...
const [library, hub, name, cache, ...images] = process.argv.slice(2);
const { env, pipeline } = await import(library);
Object.assign(env, { remoteHost: hub, cacheDir: cache, allowLocalModels: false });
const classify = await pipeline("image-classification", name, { dtype: "fp32" });
const answers = [];
for (const image of images) answers.push(await classify(image, { top_k: 1000 }));
console.log(JSON.stringify(answers));

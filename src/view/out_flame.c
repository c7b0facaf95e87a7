/*
 * The flame renderer: one HTML page, complete in itself, that draws the stacks of a table with a
 * column "stack" as a flame graph. It loads nothing, and works without a network.
 *
 * Rows go out at once, as numbers of frames; the frames' names follow when all rows are there. All
 * that comes from the recording is a JavaScript string in which `<`, `>` and `&` are escaped too,
 * and is shown as text: no byte of it can become markup.
 */
#include "base/buf.h"
#include "base/err.h"
#include "base/intern.h"
#include "base/text.h"
#include "view/doc.h"
#include "view/honesty.h"
#include "view/native_frames.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX (1u << 20)
#define NAMES_BYTES (256u << 20)

enum {
	STACK,
	FILE_,
	LINE,
	METHOD,
	WEIGHT,
	NEEDED, /* the parts before it are in every table of stacks */
	IS_C = NEEDED,
	IS_NATIVE,
	OFFSET,
	MODULE,
	SYMBOL,
	PARTS
};

struct flame {
	struct scry_intern names;
	struct scry_buf name, line;
	struct scry_buf talk; /* honesty and notes: a list of JavaScript strings */
	size_t columns[PARTS];
	bool has_table, is_short;
};

static const char head[] =
	"<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>scry stacks</title><style>\n"
	"body{font:12px sans-serif;margin:8px}#g{position:relative}\n"
	"#g div{position:absolute;height:17px;line-height:17px;overflow:hidden;white-space:nowrap;"
	"box-sizing:border-box;border:1px solid #fff;border-radius:2px;padding:0 "
	"2px;cursor:pointer}"
	"\n</style></head><body><div id=\"t\"></div><p id=\"h\">&nbsp;</p><div id=\"g\"></div>"
	"<script>\n";

/* Children lie below their callers; a click makes a frame as wide as the page. */
static const char code[] =
	"const root={n:-1,v:0,c:new Map()};\n"
	"for(const [v,s] of rows){let at=root;at.v+=v;for(const n of s){let k=at.c.get(n);"
	"if(!k){k={n,v:0,c:new Map(),up:at};at.c.set(n,k)}k.v+=v;at=k}}\n"
	"const g=document.getElementById('g'),h=document.getElementById('h');\n"
	"for(const t of talk){const p=document.createElement('div');p.textContent=t;"
	"document.getElementById('t').append(p)}\n"
	"const amount=v=>unit=='ns'?(v/1e9).toFixed(3)+' s':v.toLocaleString('en')+' '+unit;\n"
	"const text=k=>(k.n<0?'all':names[k.n])+', '+amount(k.v)+', '+"
	"(root.v?100*k.v/root.v:0).toFixed(1)+' %';\n"
	"function box(k,x,w,d){const e=document.createElement('div');"
	"e.style.left=100*x+'%';e.style.width=100*w+'%';e.style.top=18*d+'px';\n"
	"let s=0;for(const c of (k.n<0?'all':names[k.n]))s=(s*31+c.charCodeAt(0))%360;"
	"e.style.background='hsl('+(s%60)+',75%,'+(68+s%12)+'%)';\n"
	"e.textContent=e.title='';e.textContent=k.n<0?'all':names[k.n];"
	"e.onmouseover=()=>{h.textContent=text(k)};e.onclick=()=>draw(k);g.append(e)}\n"
	"function draw(z){g.textContent='';let d=0,most=0;const ups=[];"
	"for(let k=z;k;k=k.up)ups.unshift(k);for(const k of ups)box(k,0,1,d++);\n"
	"const todo=[[z,0,1,d]];while(todo.length){const [p,x,w,e]=todo.pop();let at=x;"
	"for(const k of [...p.c.values()].sort((a,b)=>b.v-a.v)){const part=w*k.v/p.v;"
	"if(part>0.0005){box(k,at,part,e);most=Math.max(most,e);todo.push([k,at,part,e+1])}at+="
	"part}}\n"
	"g.style.height=18*(most+d+2)+'px';h.textContent=text(z)}\n"
	"draw(root);\n</script></body></html>\n";

/* `text`, printable already, between quotes. */
static void put_string(struct scry_buf *buf, const char *text, size_t length)
{
	scry_buf_append(buf, "\"", 1);
	for (size_t i = 0; i < length; i++) {
		if (strchr("\"\\<>&", text[i]) && text[i])
			scry_buf_printf(buf, "\\u%04x", (unsigned char)text[i]);
		else
			scry_buf_append(buf, text + i, 1);
	}
	scry_buf_append(buf, "\"", 1);
}

static void add_talk(struct flame *flame)
{
	put_string(&flame->talk, scry_buf_str(&flame->line), flame->line.len);
	scry_buf_append(&flame->talk, ",\n", 2);
}

static void flame_honesty(struct scry_doc *doc, const struct scry_honesty *honesty)
{
	struct flame *flame = doc->renderer;

	scry_buf_clear(&flame->line);
	scry_honesty_line(honesty, doc->view, &flame->line);
	add_talk(flame);
}

static void flame_note(struct scry_doc *doc, const char *bytes, size_t length)
{
	struct flame *flame = doc->renderer;

	scry_buf_clear(&flame->line);
	scry_buf_printf(&flame->line, "note: ");
	scry_text_escape(&flame->line, bytes, length);
	add_talk(flame);
}

/* A stack says nothing of it. */
static void flame_verdict(struct scry_doc *doc, const char *bytes, size_t length)
{
}

static void flame_totals(struct scry_doc *doc, const struct scry_pair *pairs, size_t count)
{
}

static void flame_table(struct scry_doc *doc)
{
	struct flame *flame = doc->renderer;
	const char *keys[PARTS] = {"stack", "file",	 "line",   "method", doc->weight,
				   "is_c",  "is_native", "offset", "module", "symbol"};
	const char *unit = strrchr(doc->weight, '_'); /* on_cpu_ns, at_bytes; temporary */

	for (size_t part = 0; part < PARTS; part++) {
		flame->columns[part] = doc->column_count;
		for (size_t i = 0; i < doc->column_count; i++)
			if (doc->columns[i].key && !strcmp(doc->columns[i].key, keys[part]))
				flame->columns[part] = i;
		assert(part >= NEEDED || flame->columns[part] < doc->column_count);
	}
	if (!flame->has_table)
		fprintf(doc->out, "const unit=\"%s\";\nconst rows=[\n",
			unit ? unit + 1 : doc->weight);
	flame->has_table = true;
}

static void put_native(struct flame *flame, const struct scry_doc_frame *f)
{
	struct scry_buf name = {0};

	scry_native_frame_name(f, &name);
	scry_text_escape(&flame->name, scry_buf_str(&name), name.len);
	scry_buf_printf(&flame->name, " (native)");
	if (f->file && f->method) {
		scry_buf_printf(&flame->name, "  ");
		scry_text_escape(&flame->name, f->file, f->file_length);
	}
	flame->is_short |= name.failed;
	scry_buf_done(&name);
}

/* The number of a frame's name, from 0. */
static uint32_t name_of(struct flame *flame, const struct scry_doc_frame *f)
{
	uint32_t id = 0;

	scry_buf_clear(&flame->name);
	if (f->is_native)
		put_native(flame, f);
	else if (f->method)
		scry_text_escape(&flame->name, f->method, f->method_length);
	else
		scry_buf_printf(&flame->name, "(no frame known)");
	if (f->is_c)
		scry_buf_printf(&flame->name, " (C)");
	if (f->file && !f->is_native) {
		scry_buf_printf(&flame->name, "  ");
		scry_text_escape(&flame->name, f->file, f->file_length);
		scry_buf_printf(&flame->name, ":%" PRIu32, f->line);
	}
	if (flame->name.failed ||
	    scry_intern_put(&flame->names, flame->name.data, flame->name.len, &id))
		flame->is_short = true;
	return id ? id - 1 : 0;
}

/* The cell of a part that not every table has. */
static const struct scry_cell *cell_of(const struct scry_doc *doc, const struct scry_cell *cells,
				       int part)
{
	static const struct scry_cell none = {.is_unknown = true};
	const struct flame *flame = doc->renderer;

	return flame->columns[part] < doc->column_count ? &cells[flame->columns[part]] : &none;
}

/* Behind its stack; of a native one without a line, the caller itself. */
static struct scry_doc_frame place_of(const struct scry_doc *doc, const struct scry_cell *cells)
{
	const struct scry_cell *file = cell_of(doc, cells, FILE_);
	const struct scry_cell *method = cell_of(doc, cells, METHOD);
	const struct scry_cell *module = cell_of(doc, cells, MODULE);
	const struct scry_cell *symbol = cell_of(doc, cells, SYMBOL);
	struct scry_doc_frame place = {
		.line = (uint32_t)cell_of(doc, cells, LINE)->number,
		.is_c = cell_of(doc, cells, IS_C)->number,
		.is_native = cell_of(doc, cells, IS_NATIVE)->number,
		.offset = cell_of(doc, cells, OFFSET)->number,
	};

	if (!file->bytes && (module->bytes || symbol->bytes)) {
		place.is_native = true;
		file = module;
		method = symbol;
	}
	place.file = file->bytes;
	place.file_length = file->length;
	place.method = method->bytes;
	place.method_length = method->length;
	return place;
}

static void flame_row(struct scry_doc *doc, const struct scry_cell *cells)
{
	struct flame *flame = doc->renderer;
	const struct scry_cell *stack = cell_of(doc, cells, STACK);
	const struct scry_cell *weight = cell_of(doc, cells, WEIGHT);
	const struct scry_doc_frame place = place_of(doc, cells);
	/* Native stacks of malloc end with the caller itself. */
	const bool has_place = flame->columns[IS_NATIVE] < doc->column_count || stack->is_unknown ||
			       !stack->number || cell_of(doc, cells, FILE_)->bytes;

	if (weight->is_unknown || !weight->number)
		return;
	fprintf(doc->out, "[%" PRIu64 ",[", weight->number);
	for (uint64_t i = 0; i < stack->number && !stack->is_unknown; i++)
		fprintf(doc->out, "%" PRIu32 ",", name_of(flame, &stack->frames[i]));
	if (has_place)
		fprintf(doc->out, "%" PRIu32, name_of(flame, &place));
	fprintf(doc->out, "]],\n");
}

static void flame_remark(struct scry_doc *doc, const char *remark)
{
}

static void flame_abandon(struct scry_doc *doc)
{
	struct flame *flame = doc->renderer;

	scry_intern_done(&flame->names);
	scry_buf_done(&flame->name);
	scry_buf_done(&flame->line);
	scry_buf_done(&flame->talk);
	free(flame);
	doc->renderer = NULL;
}

static int flame_end(struct scry_doc *doc)
{
	struct flame *flame = doc->renderer;
	bool is_short = flame->is_short || flame->talk.failed;

	fputs(flame->has_table ? "];\nconst names=[\n"
			       : "const unit='';\nconst rows=[];\nconst names=[\n",
	      doc->out);
	for (uint32_t i = 1; i <= flame->names.count; i++) {
		size_t length = 0;
		const char *name = scry_intern_get(&flame->names, i, &length);

		scry_buf_clear(&flame->line);
		put_string(&flame->line, name, length);
		fprintf(doc->out, "%s,\n", scry_buf_str(&flame->line));
		is_short |= flame->line.failed;
	}
	fprintf(doc->out, "];\nconst talk=[\n%s];\n%s", scry_buf_str(&flame->talk), code);
	flame_abandon(doc);
	if (is_short)
		return scry_fail(-ENOMEM, "no memory for the picture");
	return scry_flush(doc->out, "the picture");
}

int scry_out_flame_open(struct scry_doc *doc)
{
	static const struct scry_doc_ops ops = {
		.honesty = flame_honesty,
		.note = flame_note,
		.verdict = flame_verdict,
		.totals = flame_totals,
		.table = flame_table,
		.row = flame_row,
		.remark = flame_remark,
		.end = flame_end,
		.abandon = flame_abandon,
	};
	struct flame *flame = calloc(1, sizeof(*flame));

	if (!flame)
		return scry_fail(-ENOMEM, "no memory for the picture");
	scry_intern_init(&flame->names, NAMES_MAX, NAMES_BYTES);
	doc->ops = &ops;
	doc->is_data = doc->is_folded = true;
	doc->renderer = flame;
	fputs(head, doc->out);
	return 0;
}

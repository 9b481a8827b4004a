// stories.cuh: the built-in data set: small stories for children, written by a grammar; any amount, no download.
//
// Story i is a pure function of (seed, i): a cast (names, objects, places, animals, numbers, days) is drawn, then one
// of the plots is told with it. What a plot says later depends on what it said before: who has the ball, where it was
// seen, which tool mends cloth or wood, how many apples are left, in which order the way home goes (backwards), what
// each animal said. So a model that only knows spelling, one that knows words, one that keeps track of the cast and one
// that counts reach clearly different losses.
//
// The language of the templates:
//   $N        a value of the cast (see draw_cast)
//   [a|b|c]   one of the alternatives, drawn uniformly; may be nested or empty
// The text is ASCII; a story ends with a blank line.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include "layers/random.cuh"

namespace data {

inline uint64_t mix(uint64_t x) {  // splitmix64's finalizer, a bijection
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

// ---- the words

// clang-format off
struct Thing { const char *noun, *clue, *tool, *mending; };  // what it is guessed by, what mends it
struct Animal { const char *kind, *sound, *food, *home; };
struct Place { const char *the, *in; };
struct Kin { const char *name, *she, *her; };

inline const char *girl(uint32_t i) {
  static const char *const names[] = {"Anna", "Bella", "Clara", "Daisy", "Emma", "Fiona", "Grace", "Hanna", "Ivy",
    "Julia", "Kate", "Lily", "Mia", "Nora", "Olive", "Penny", "Rosa", "Sara", "Tina", "Una", "Vera", "Wendy", "Yara",
    "Zoe"};
  return names[i % 24];
}
inline const char *boy(uint32_t i) {
  static const char *const names[] = {"Adam", "Ben", "Carl", "Dan", "Eli", "Finn", "George", "Henry", "Ian", "Jack",
    "Kai", "Leo", "Max", "Noah", "Oscar", "Paul", "Ravi", "Sam", "Tom", "Udo", "Victor", "Will", "Yuri", "Zack"};
  return names[i % 24];
}
inline const char *adjective(uint32_t i) {
  static const char *const words[] = {"red", "blue", "green", "yellow", "orange", "purple", "pink", "white", "black",
    "brown", "big", "tiny", "old", "new", "shiny", "soft", "striped", "golden", "silver", "ugly", "odd", "fine",
    "light", "pretty"};
  return words[i % 24];
}
inline const Thing &thing(uint32_t i) {
  static const Thing things[] = {
    {"ball", "It is round and it can bounce", "a patch", "put a patch on it"},
    {"kite", "It flies when the wind blows", "some tape", "taped the paper"},
    {"boat", "It floats on the water", "some glue", "glued the wood"},
    {"doll", "It has a face and a dress", "a needle and thread", "sewed it up"},
    {"teddy bear", "It is warm and good to hug", "a needle and thread", "sewed it up"},
    {"drum", "It goes boom when you hit it", "a patch", "put a patch on it"},
    {"book", "It has many pages to read", "some tape", "taped the paper"},
    {"truck", "It has four wheels", "a screwdriver", "turned the screws"},
    {"train", "It runs on a track", "a screwdriver", "turned the screws"},
    {"hat", "You wear it on your head", "a needle and thread", "sewed it up"},
    {"scarf", "You wear it around your neck", "a needle and thread", "sewed it up"},
    {"chair", "You can sit on it", "a hammer and nails", "hammered in the nails"},
    {"birdhouse", "A bird can live in it", "a hammer and nails", "hammered in the nails"},
    {"bell", "It rings when you shake it", "some wire", "bent the wire"},
    {"cup", "You can drink from it", "some glue", "glued it together"},
    {"clock", "It tells you the time", "a screwdriver", "turned the screws"},
    {"map", "It shows you the way", "some tape", "taped the paper"},
    {"whistle", "It is small and very loud", "some glue", "glued it together"},
    {"lamp", "It gives light at night", "some wire", "bent the wire"},
    {"puppet", "It dances on its strings", "a needle and thread", "sewed it up"},
    {"sled", "It slides down the hill in winter", "a hammer and nails", "hammered in the nails"},
    {"basket", "You carry eggs in it", "some wire", "bent the wire"},
    {"swing", "It goes up and down under a tree", "a strong rope", "tied the rope"},
    {"tent", "You can sleep in it outside", "a strong rope", "tied the rope"}};
  return things[i % 24];
}
inline const Animal &animal(uint32_t i) {
  static const Animal animals[] = {
    {"cow", "Moo", "grass", "barn"}, {"cat", "Meow", "milk", "basket"}, {"dog", "Woof", "bones", "kennel"},
    {"duck", "Quack", "bread", "pond"}, {"sheep", "Baa", "clover", "meadow"}, {"frog", "Ribbit", "flies", "pond"},
    {"wolf", "Howl", "mice", "den"}, {"bee", "Buzz", "honey", "hive"}, {"pig", "Oink", "corn", "pen"},
    {"horse", "Neigh", "hay", "stable"}, {"mouse", "Squeak", "cheese", "hole"}, {"hen", "Cluck", "seeds", "coop"},
    {"crow", "Caw", "nuts", "nest"}, {"goose", "Honk", "weeds", "lake"}, {"lion", "Roar", "meat", "cave"},
    {"snake", "Hiss", "eggs", "rock"}, {"goat", "Maa", "leaves", "hill"}, {"bird", "Tweet", "worms", "nest"}};
  return animals[i % 18];
}
inline const Place &place(uint32_t i) {
  static const Place places[] = {
    {"the garden", "in the garden"}, {"the park", "in the park"}, {"the beach", "at the beach"},
    {"the forest", "in the forest"}, {"the farm", "on the farm"}, {"the lake", "by the lake"},
    {"the market", "at the market"}, {"the school", "at the school"}, {"the library", "in the library"},
    {"the zoo", "at the zoo"}, {"the river", "by the river"}, {"the castle", "in the castle"},
    {"the village", "in the village"}, {"the mill", "at the mill"}, {"the playground", "on the playground"},
    {"the hill", "on the hill"}};
  return places[i % 16];
}
inline const char *spot(uint32_t i) {
  static const char *const spots[] = {"under the bed", "behind the door", "in the box", "on the shelf",
    "under the bench", "behind the big tree", "in the tall grass", "next to the well", "under the bridge",
    "in the shed", "behind the fence", "on the roof", "in the bushes", "under the table", "inside the cupboard",
    "near the gate"};
  return spots[i % 16];
}
inline const char *landmark(uint32_t i) {
  static const char *const marks[] = {"the old bridge", "the tall pine", "the red barn", "the stone wall",
    "the little well", "the white gate", "the fallen log", "the big rock", "the windmill", "the apple tree",
    "the church", "the blue house"};
  return marks[i % 12];
}
inline const char *food(uint32_t i) {
  static const char *const foods[] = {"apples", "pears", "plums", "cherries", "carrots", "eggs", "cookies", "grapes",
    "berries", "muffins", "peaches", "lemons", "walnuts", "beans", "pancakes", "tomatoes"};
  return foods[i % 16];
}
inline const Kin &kin(uint32_t i) {
  static const Kin family[] = {{"Mom", "she", "her"}, {"Dad", "he", "his"}, {"Grandma", "she", "her"},
    {"Grandpa", "he", "his"}, {"Aunt Jo", "she", "her"}, {"Uncle Quinn", "he", "his"}};
  return family[i % 6];
}
inline const char *number(uint32_t i) {
  static const char *const numbers[] = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight",
    "nine", "ten", "eleven", "twelve"};
  return numbers[i];
}
inline const char *day(uint32_t i) {
  static const char *const days[] = {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};
  return days[i % 7];
}
inline const char *temper(uint32_t i) {
  static const char *const words[] = {"shy", "brave", "curious", "kind", "clever", "quiet", "funny", "patient",
    "proud", "careful", "cheerful", "lazy"};
  return words[i % 12];
}

// ---- the plots

constexpr int PLOTS = 14, OPENINGS = 4, ENDINGS = 6;

inline const char *opening(uint32_t i) {
  static const char *const text[OPENINGS] = {
    ("[Once upon a time|Long ago|One day], there was a [little |small |young |]$k named $N. $H was [very |so |]$n[ and "
     "lived $L| and $s best friend was $F|]."),
    "$N was a $n $k[ who lived $L| who had a friend named $F|].",
    "[It was a [sunny|rainy|windy|cold|warm|snowy] $d|It was $d morning], and $N was $L. $H was a $n $k.",
    "There [once was|was once] a $k called $N. Everyone said that $h was the most $n $k in the [village|town|street]."};
  return text[i % OPENINGS];
}

inline constexpr const char *PLOT_TEXTS[PLOTS] = {
  // lost and found where the animal said
  ("$N had $a$C $B[ that $h loved very much| from $R|]. [One morning|On $D|After lunch] the $B was [gone|nowhere to "
   "be seen]. $N looked $X, but it was not there. [$H looked $Y, but it was not there either. |$H began to cry. "
   "|]Then a $1 came by. \"$4! I saw [your $B|something $C] $Z,\" said the $1. $N ran to look $Z[ right away|]. "
   "[And there was|There it was,] the $C $B! [\"Thank you, $1!\" said $N. |$N gave the $1 some $7 to say thank you. "
   "|]From then on $h always kept the $B $W."),
  // sharing
  ("$R gave $N $c $I. [On the way to $T|A little later] $N met $F. $F was [hungry|sad] because $e had no $I. [\"Do "
   "you want some of my $I?\" asked $N.|\"Please take some,\" said $N.] $H gave $o $g $I. Now $N had $l $I[ left|] "
   "and $F had $g. [\"You are so kind,\" said $F. |They sat down $X and ate. |]The next day $F came back with $a$C "
   "$B. \"This is for you, because you shared your $I with me,\" $e said."),
  // broken and mended
  ("$N was playing $L with $s $C $B. [Oh no!|Crash!|Then it happened:] $F [ran into $m|fell down|did not look], and "
   "the $B broke. $F said, \"I am sorry, $N.\" $N was [angry|sad] at first. But then $h said, \"[We can fix it|Let "
   "us fix it|Do not worry].\" They went to $R. \"For a broken $B you need $t,\" said $R. So $N [got|found|brought] "
   "$t, and $F $u. Soon the $C $B was [as good as new|whole again]. $N and $F [played with it until dark|were "
   "happy]."),
  // the animal in trouble
  ("[While walking to $T|On $D], $N heard a sound. \"$4! $4!\" It was a little $1. It was stuck $X. $N wanted to "
   "help, but $h was too small. So $h called $R. $R came and lifted the $1 out. The $1 was [hungry|cold and "
   "hungry], and $N gave it some $7. [\"Where do you live?\" asked $N. |]The $1 [showed $m|ran to] its ${. \"$4,\" "
   "said the $1 happily. After that, $N brought $7 to the ${ every $D."),
  // guess the present
  ("It was $s birthday, and $R had a present for $N. It was in $a$C box. \"Can you guess what it is?\" asked $R. "
   "\"$q,\" said $R. $N thought [hard|for a while]. \"Is it a $b?\" $h asked. [\"No, it is not a $b,\" said $R|$R "
   "shook $V head]. \"$q.\" \"Then it must be a $B!\" said $N. $H opened the box, and it was a $B. $N [hugged "
   "$R|danced around the room|jumped for joy]. $H took the $B to $T and showed it to $F."),
  // baking
  ("$N and $F wanted to bake a cake for $R. They needed $I, $J and $K. They found the $I $X. They found the $J $Y. "
   "But where were the $K? [They looked everywhere. |$F looked $W. |]\"I [ate|gave away] the $K yesterday,\" said "
   "$F. \"[Oh well|Never mind],\" said $N, \"we will make it with $I and $J.\" So they made a cake without $K. $R "
   "[loved it|ate three pieces]. \"What is in it?\" asked $R. \"$I and $J,\" said $N, \"but no $K!\" They all "
   "laughed."),
  // the garden
  ("On $d, $N planted $a$C seed $L. $H gave it water[ every day|]. On $D, nothing had come up. $F said, \"It will "
   "never grow.\" But $N [waited|was patient|did not give up]. On $+ there was a tiny green leaf. On $- there was "
   "$a$C flower! $F [could not believe it|opened $r eyes wide]. \"How long did it take?\" asked $F. \"I planted it "
   "on $d, and it is $- now,\" said $N. [They gave the flower to $R.|$N gave the $C flower to $F.]"),
  // three animals
  ("$N had lost $s way to $T. First $h met a $1. \"$4,\" said the $1. \"I only know the way to my ${.\" Then $h met "
   "a $2. \"$5,\" said the $2. \"[Give me some $8|I want some $8], and I will help you.\" But $N had no $8. At last "
   "$h met a $3. \"$6,\" said the $3. \"[Follow me|Come with me]!\" So $N followed the $3 to $T. There $h told $F "
   "about the $1, the $2 and the $3. \"The $1 said $4, the $2 said $5 and the $3 said $6,\" said $N. \"But only the "
   "$3 helped me.\""),
  // there and back
  ("$N and $F [went|walked] from home to $T. First they passed $x, then $y, and then $z. [They played there all "
   "day. |They had a picnic with $I and $J. |]When it got dark, $F was afraid. \"How will we get home?\" $e asked. "
   "\"[It is easy|I know],\" said $N. \"We go back past $z, then $y, and then $x.\" And so they did. They saw $z, "
   "then $y, and then $x, and soon they were home. [$R was waiting with $I.|\"There you are!\" said $R.]"),
  // hide and seek
  ("$N, $F and $R played hide and seek $L. $N counted to $c. $F hid $X, and $R hid $Y. \"Here I come!\" called $N. "
   "First $h looked $Z. Nobody was there. Then $h looked [$X and found $F. After that $h looked $Y and found $R|$Y "
   "and found $R. After that $h looked $X and found $F]. \"Now it is my turn to hide,\" said $F. [$E hid $Z, where "
   "nobody had been.|This time $N hid $Y, where $R had been.]"),
  // the truth
  ("[One day|On $D], $N was playing with $a$C $B in the house, and it [hit|knocked over] the $_ cup. [The cup was "
   "in many pieces. |]\"Who did that?\" asked $R. \"It was the $1,\" said $N. The $1 [said nothing|only said, "
   "\"$4\"]. That night $N could not sleep. $H [thought of|felt sorry for] the poor $1. [In the morning|On the next "
   "day] $h went to $R and said, \"It was not the $1. It was me and my $B.\" $R [smiled|hugged $m]. \"Thank you for "
   "telling the truth,\" $v said. The $1 got some $7, and $N [mended the cup|bought a new cup]."),
  // the race
  ("The $1 and the $2 wanted to know who was faster. \"I am [faster|the fastest],\" said the $1. \"$5,\" said the "
   "$2, \"we will see.\" $N said, \"Run from $x to $y!\" The $1 ran [very |so |]fast and was soon far ahead. Then "
   "it saw some $7 $X and stopped to eat. The $2 [did not stop|ran on and on]. When the $1 looked up, the $2 was "
   "already at $y. \"The $2 wins!\" said $N. [$H gave the $2 some $8.|The $1 was sorry that it had stopped for $7.]"),
  // the trade
  ("$N had $a$C $B, but $h wanted $A$_ $b. $F had $A$_ $b. \"Will you trade?\" asked $N. \"I will give you my $B "
   "for your $b.\" \"[Yes|All right|Good],\" said $F. So $N took the $b, and $F took the $B. $N [played with|liked] "
   "the $b for [a day|a week]. But [soon|then] $h missed the $B. $F missed the $b, too. \"Let us trade back,\" said "
   "$F. So $F got the $_ $b and $N got the $C $B. \"[Now|Next time] we can play with both together,\" said $N."),
  // the new child
  ("There was a new child at school. The new child was called $F, and $e was [shy|quiet|alone]. Nobody played with "
   "$o. $N saw that $F had $a$C $B. \"I like [your $B|that $C $B],\" said $N. \"I have $A$_ $B at home.\" $F "
   "smiled. On $D, $N brought $s $_ $B, and $F brought $r $C $B. They played together $L[ until it was dark|]. "
   "[\"Is $F your friend?\" asked $R. \"Yes,\" said $N, \"we both have a $B.\"|From that $D on, $N and $F were best "
   "friends.]")};
inline const char *plot(uint32_t i) { return PLOT_TEXTS[i % PLOTS]; }

inline const char *ending(uint32_t i) {
  static const char *const text[ENDINGS] = {
    "", "", "That night $N slept very well.", "And everyone agreed that $N was [a very|the most] $n $k.",
    "$N [told|wrote to] $R about it, and $v [laughed|was proud].",
    "[The end.|\"What a day!\" said $F.|$N never forgot that $d.]"};
  return text[i % ENDINGS];
}
// clang-format on

// ---- the teller

struct Teller {
  std::string out;
  uint64_t state = 0;          // splitmix64
  std::string_view cast[128];  // letter of a template -> value

  uint32_t roll(uint32_t n) {  // 0..n-1
    state += 0x9E3779B97F4A7C15ull;
    return (uint32_t)((mix(state) >> 32) * n >> 32);
  }
  // Three different numbers below n
  void roll_three(uint32_t to[3], uint32_t n) {
    to[0] = roll(n);
    to[1] = (to[0] + 1 + roll(n - 1)) % n;
    do to[2] = roll(n);
    while (to[2] == to[0] || to[2] == to[1]);
  }
  void set(char letter, std::string_view value) { cast[(unsigned char)letter] = value; }

  void draw_people();
  void draw_world();
  void tell(const char *p, const char *end);
  void tell(const char *text) { tell(text, text + strlen(text)); }
  void story(uint64_t key, uint64_t number);
};

// N hero: h he, H He, m him, s his, k boy; F friend: e he, E He, o him, r his; R relative: v she, V her; n temper
inline void Teller::draw_people() {
  const uint32_t hero = roll(24), companion = (hero + 1 + roll(23)) % 24, girls = roll(4);
  const bool she = girls & 1, friend_she = girls & 2;
  set('N', she ? girl(hero) : boy(hero));
  set('F', friend_she ? girl(companion) : boy(companion));
  set('h', she ? "she" : "he");
  set('H', she ? "She" : "He");
  set('m', she ? "her" : "him");
  set('s', she ? "her" : "his");
  set('k', she ? "girl" : "boy");
  set('e', friend_she ? "she" : "he");
  set('E', friend_she ? "She" : "He");
  set('o', friend_she ? "her" : "him");
  set('r', friend_she ? "her" : "his");
  const Kin &relative = kin(roll(6));
  set('R', relative.name);
  set('v', relative.she);
  set('V', relative.her);
  set('n', temper(roll(12)));
}

// B thing: q clue, t tool, u mending; b another thing; C _ adjectives with articles a A; 1 2 3 animals with sounds
// 4 5 6, foods 7 8 9, { home of the first; X Y Z W spots; x y z landmarks; L a place with its preposition, T another;
// I J K foods; c = g + l numbers; d D + - days in order
inline void Teller::draw_world() {
  const auto article = [](const char *word) { return strchr("aeiou", word[0]) ? "an " : "a "; };
  uint32_t r[3];
  roll_three(r, 24);
  const Thing &first = thing(r[0]);
  set('B', first.noun);
  set('q', first.clue);
  set('t', first.tool);
  set('u', first.mending);
  set('b', thing(r[1]).noun);
  roll_three(r, 24);
  set('C', adjective(r[0]));
  set('a', article(adjective(r[0])));
  set('_', adjective(r[1]));
  set('A', article(adjective(r[1])));
  roll_three(r, 18);
  for (int i = 0; i < 3; i++) {
    const Animal &a = animal(r[i]);
    set((char)('1' + i), a.kind);
    set((char)('4' + i), a.sound);
    set((char)('7' + i), a.food);
  }
  set('{', animal(r[0]).home);
  roll_three(r, 16);
  for (int i = 0; i < 3; i++) set("XYZ"[i], spot(r[i]));
  set('W', spot(r[2] + 1 + roll(15)));
  roll_three(r, 12);
  for (int i = 0; i < 3; i++) set("xyz"[i], landmark(r[i]));
  roll_three(r, 16);
  set('L', place(r[0]).in);
  set('T', place(r[1]).the);
  roll_three(r, 16);
  for (int i = 0; i < 3; i++) set("IJK"[i], food(r[i]));
  const uint32_t all = 4 + roll(9), given = 2 + roll(all - 3), today = roll(7);
  set('c', number(all));
  set('g', number(given));
  set('l', number(all - given));
  set('d', day(today));
  set('D', day(today + 1));
  set('+', day(today + 3));
  set('-', day(today + 5));
}

inline void Teller::tell(const char *p, const char *end) {
  while (p < end) {
    const char *run = p;
    while (p < end && *p != '$' && *p != '[') p++;
    out.append(run, (size_t)(p - run));
    if (p == end) return;
    if (*p == '$') {
      out.append(cast[(unsigned char)p[1]]);
      p += 2;
      continue;
    }
    const char *bound[10] = {p};  // the '[', the '|' of this level, the ']'
    uint32_t n = 0;
    for (int depth = 0;; p++) {
      depth += (*p == '[') - (*p == ']');
      if (depth == 0 || (depth == 1 && *p == '|')) bound[++n] = p;
      if (depth == 0) break;
    }
    const uint32_t pick = roll(n);
    tell(bound[pick] + 1, bound[pick + 1]);
    p++;
  }
}

inline void Teller::story(uint64_t key, uint64_t number) {
  state = mix(key ^ mix(number));
  draw_people();
  draw_world();
  tell(opening(roll(OPENINGS)));
  out += ' ';
  tell(plot(roll(PLOTS)));
  const char *last = ending(roll(ENDINGS));
  if (*last) out += ' ';
  tell(last);
  out += "\n\n";
}

// Exactly `bytes` bytes of stories, the last one cut; a longer text of the same seed starts with the shorter one
inline std::string generate_stories(int64_t bytes, uint64_t seed) {
  const uint64_t key = rng::key_of(seed, "stories");
  Teller teller;
  teller.out.reserve((size_t)bytes + 4096);
  for (uint64_t i = 0; (int64_t)teller.out.size() < bytes; i++) teller.story(key, i);
  teller.out.resize((size_t)bytes);
  return std::move(teller.out);
}

}  // namespace data

// SPDX-License-Identifier: BSD-3-Clause
//
// A file is left, something happens to it, and the next map has to give the right result. A scene says how
// the last process left the file, what happened then, the result of a program without the rules, and the
// answer of ato_mmap(), with each preference. play() runs it.
#ifndef ATO_TEST_HAZARDS_SCENE_H
#define ATO_TEST_HAZARDS_SCENE_H

#include "hazards/cut_commit.h"
#include "naive.h"
#include "support/faults.h"

#include <functional>
#include <memory>
#include <sstream>

#include <fcntl.h>
#include <sys/xattr.h>

namespace scene
{

enum Next {
    FOUND,   // mapped with its content, with any preference
    REFUSED, // each time, and nothing changes; undone, the file maps as before
    A_COPY,  // refused, because it is a copy, until its own bytes are preferred
    SET_ASIDE, // mapped with its own bytes; the pairing there is another file's, and stays as *.stale-*
    UNSEEN     // mapped, with older slices in it
};

class Stage;

struct Scene {
    const char *name;
    std::function<void(Stage &)> past, change;
    std::function<void(Stage &)> naive; // the control
    Next next;
    int error = 0;
    std::string words = "";     // of the sentence, with bars between; {...}: Stage::said()
    unsigned wins = 0;          // flags that decide after a refusal
    const char *wish = nullptr; // a chosen reflection folder

    friend std::ostream &operator<<(std::ostream &out, const Scene &s)
    {
        return out << s.name;
    }
};

class Stage : public Hazard
{
  public:
    Stage()
    {
        fs::create_directory(dir / "a");
        fs::create_directory(dir / "b");
        move(path, near("file"));
        moves.clear();
        path = now = near("file");
    }

    std::string near(const std::string &name) const
    {
        return dir / ("a/" + name);
    }
    std::string far(const std::string &name) const
    {
        return dir / ("b/" + name);
    }

    // Changes that can be undone: files written, removed or made. The file itself must not be removed.
    void move(const std::string &from, const std::string &to)
    {
        fs::rename(from, to);
        moves.emplace_back(from, to);
    }

    void flip_byte(const std::string &p, uint64_t at, unsigned char mask = 1)
    {
        unsigned char byte = static_cast<unsigned char>(read_at(p, at, 1)[0] ^ mask);
        write_at(p, at, &byte, 1);
    }

    void remove_attribute(const std::string &p)
    {
        ASSERT_EQ(removexattr(p.c_str(), "user.ato"), 0);
    }

    std::string said(std::string word) const
    {
        const std::string folder = folder_of(now);
        for (const auto &[name, value] : {std::pair<std::string, std::string>("{file}", now),
                                          {"{folder}", folder},
                                          {"{manifest}", manifest_of(now)},
                                          {"{reflection}", reflection_of(now)},
                                          {"{dir}", dir.path()},
                                          {"{number}", std::to_string(inode_of(path_now()))},
                                          {"{size}", std::to_string(size_of(now))},
                                          {"{was}", std::to_string(SIZE)}})
            if (size_t at = word.find(name); at != std::string::npos)
                word.replace(at, name.size(), value);
        return word;
    }

    ato_options wish(const Scene &s, unsigned flags = 0)
    {
        ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, flags);
        if (s.wish) {
            wished = said(s.wish);
            o.reflection_dir = wished.c_str();
        }
        return o;
    }

    void play(const Scene &s)
    {
        s.past(*this);
        ASSERT_FALSE(HasFailure());
        Everything sound(dir.path());
        const struct timespec times[2] = {stat_of(path).st_atim, stat_of(path).st_mtim};
        auto undo = [&] { restore(sound, times); };
        s.change(*this);
        if (IsSkipped())
            return;
        ASSERT_FALSE(HasFailure());
        s.naive(*this);
        switch (s.next) {
        case FOUND:
            return expect_found(s);
        case REFUSED:
            return expect_refused(s, undo);
        case A_COPY:
            return expect_a_copy();
        case SET_ASIDE:
            return expect_set_aside(now, read_file(now));
        case UNSEEN: {
            const Bytes mix = by_number(now);
            expect_garbage(mix);
            EXPECT_NE(mix, read_file(now));
            content = mix;
            return expect_maps(now);
        }
        }
    }

    void expect_found(const Scene &s)
    {
        const auto folders = folders_in_use();
        for (unsigned flag : {0u, ATO_PREFER_REFLECTION, ATO_PREFER_FILE}) {
            Mapped m(now, wish(s, flag));
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.read(), content);
            if (!attribute_of(now).empty()) { // without it, an unmap leaves a plain file
                EXPECT_GT(m.stat().slices_in_reflection, 0u);
            }
        }
        EXPECT_EQ(folders_in_use(), folders) << "another reflection was made, or one set aside";
    }

    void expect_refused(const Scene &s, const std::function<void()> &undo)
    {
        std::vector<std::string> words;
        std::istringstream all(s.words);
        for (std::string word; std::getline(all, word, '|');)
            words.push_back(said(word));
        const std::string there = now;
        Everything wrong(dir.path());
        for (unsigned flag : {0u, ATO_PREFER_REFLECTION, ATO_PREFER_FILE, 0u})
            if (!(flag & s.wins))
                expect_error(now, s.error, words, wish(s, flag));
        EXPECT_TRUE(wrong == Everything(dir.path())) << "a file was changed, made or removed";
        ASSERT_FALSE(HasFailure());
        for (unsigned flag : {ATO_PREFER_REFLECTION, ATO_PREFER_FILE})
            if (flag & s.wins) {
                SCOPED_TRACE(flag);
                expect_error(now, s.error, {}, wish(s));
                expect_preferred(s, flag);
                undo();
                s.change(*this);
                now = there;
            }
        undo();
        expect_maps(path);
    }

    // Mapped with that preference; file and reflection belong together from now on.
    void expect_preferred(const Scene &s, unsigned flag)
    {
        const bool file = flag == ATO_PREFER_FILE;
        const std::string attribute = attribute_of(now);
        const bool is_copy =
            !attribute.empty() && attribute.find(said(" {number} ")) == std::string::npos;
        Bytes seen = file ? read_file(now) : by_number(now);
        const Everything before(dir.path());
        Log log;
        {
            Mapped m(now, wish(s, flag));
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.read(), seen);
            EXPECT_EQ(m.stat().slices_in_reflection == 0, file);
            ASSERT_TRUE(m.write(5, pattern(300, 9))) << m.sentence;
            std::copy_n(pattern(300, 9).begin(), 300, seen.begin() + 5);
        }
        EXPECT_TRUE(is_copy ||
                    log.has(ATO_LOG_WARNING, file ? "ATO_PREFER_FILE" : "ATO_PREFER_REFLECTION"));
        Mapped again(now, wish(s));
        ASSERT_TRUE(again) << again.sentence;
        EXPECT_EQ(again.read(), seen);
        const Everything after(dir.path());
        for (const auto &[name, bytes] : before.files) { // the reflection's bytes are still there
            const bool held = fs::path(name).parent_path().filename() == ".ato" &&
                              fs::path(name).extension() != ".manifest";
            auto same = [&b = bytes](const auto &f) { return f.second == b; };
            EXPECT_TRUE(!held || !file || std::any_of(after.files.begin(), after.files.end(), same))
                << name;
        }
    }

    // Its source is unchanged.
    void expect_a_copy()
    {
        const Bytes stale = read_file(now);
        const Everything before(dir.path());
        for (int i = 0; i < 2; i++)
            expect_error(now, ESTALE, {now + " was copied"});
        EXPECT_TRUE(before == Everything(dir.path()));
        {
            Mapped m(now, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_PREFER_FILE));
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.read(), stale);
            EXPECT_TRUE(m.write(0, pattern(100, 9))) << m.sentence;
        }
        EXPECT_NE(id_of(now), id_of(path));
        open.reset();
        expect_maps(path);
    }

    // The file has its own bytes, now and later; the stale pairing is kept unchanged.
    void expect_set_aside(const std::string &p, const Bytes &theirs)
    {
        const std::string number = std::to_string(inode_of(p)), folder = folder_of(p);
        const Bytes reflection = read_file(reflection_of(p)), manifest = read_file(manifest_of(p));
        std::string aside;
        Log log;
        {
            Mapped m(p, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.read(), theirs);
            EXPECT_EQ(m.stat().slices_in_reflection, 0u);
        }
        for (const std::string &name : names_in(folder))
            if (name.rfind(number + ".stale-", 0) == 0 && fs::path(name).extension() != ".manifest")
                aside = name;
        ASSERT_NE(aside, "");
        EXPECT_TRUE(log.has(ATO_LOG_WARNING, folder + "/" + number + " "));
        EXPECT_TRUE(log.has(ATO_LOG_WARNING, "renamed to " + aside));
        EXPECT_EQ(read_file(folder + "/" + aside), reflection)
            << "the stale reflection was changed";
        EXPECT_EQ(read_file(folder + "/" + aside + ".manifest"), manifest);
        // Nothing is left under the inode number that another program could apply; and there is one warning.
        EXPECT_EQ(by_number(p), theirs);
        Log later;
        Mapped again(p);
        ASSERT_TRUE(again) << again.sentence;
        EXPECT_EQ(again.read(), theirs);
        EXPECT_FALSE(later.has(ATO_LOG_WARNING, "set aside"));
    }

    std::string now;              // the path of the next map
    std::unique_ptr<Mapped> open; // a mapping that stays
    std::unique_ptr<FsFaults> faults;

  private:
    std::string path_now() const
    {
        return exists(now) ? now : path;
    }

    std::set<std::string> folders_in_use() const
    {
        std::set<std::string> all;
        for (const auto &entry : fs::recursive_directory_iterator(dir.path()))
            if (entry.path().filename() == ".ato" ||
                entry.path().string().find(".stale-") != std::string::npos)
                all.insert(entry.path());
        return all;
    }

    void restore(const Everything &sound, const struct timespec times[2])
    {
        for (; !moves.empty(); moves.pop_back()) {
            fs::remove_all(moves.back().first); // made anew
            fs::rename(moves.back().second, moves.back().first);
        }
        for (const auto &[name, attribute] : Everything(dir.path()).names)
            if (!sound.names.count(name))
                fs::remove_all(name);
        for (const auto &[name, bytes] : sound.files)
            if (!exists(name) || read_file(name) != bytes)
                write_file(name, bytes);
        for (const auto &[name, attribute] : sound.names)
            if (attribute_of(name) != attribute && attribute.empty())
                remove_attribute(name);
            else if (attribute_of(name) != attribute)
                set_attribute(name, attribute);
        now = path;
        ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
        ASSERT_TRUE(sound == Everything(dir.path()));
    }

    std::vector<std::pair<std::string, std::string>> moves;
    std::string wished;
};

// ---- the state of the file ----------------------------------------------------------------------

inline void slices(Stage &s)
{
    s.leave_slices();
}

// Killed: the times are not stored.
inline void killed(Stage &s)
{
    ASSERT_EQ(in_child([&] {
                  Mapped m(s.path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
                  bool good = m && m.write(4500, pattern(3000, 2));
                  m.base = nullptr;
                  return good ? 0 : 1;
              }),
              0);
    std::copy_n(pattern(3000, 2).begin(), 3000, s.content.begin() + 4500);
}

// Killed in a commit, when two of three pages have flipped.
inline void cut(Stage &s)
{
    ASSERT_EQ(cut_commit::die_between_flips(s.path), CUT);
    const Bytes record = cut_commit::record();
    std::copy(record.begin(), record.end(), s.content.begin() + cut_commit::AT);
}

// In a folder of the caller's choice: the attribute says which.
inline void in_callers_folder(Stage &s)
{
    const std::string folder = s.dir / "reflections";
    ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
    o.reflection_dir = folder.c_str();
    s.leave_slices(o);
    EXPECT_FALSE(exists(s.near(".ato")));
}

// ---- the event -----------------------------------------------------------------------------------

inline void nothing(Stage &)
{
}

// The manifest is of a file that had this inode number before.
inline void change_birth(Stage &s)
{
    s.patch_manifest(manifest_of(s.path), [](manifest_record &r) { r.birth_nsec ^= 1; });
}

// ---- the result of a program without the rules --------------------------------------------------

// The program ignores the reflection, or makes a new one.
inline void stale_alone(Stage &s)
{
    s.expect_stale(read_file(s.now));
}

// It finds no reflection, or trusts the damaged one.
inline void stale_by_number(Stage &s)
{
    s.expect_stale(by_number(s.now));
}

// It combines parts that do not belong together.
inline void garbage_by_number(Stage &s)
{
    s.expect_garbage(by_number(s.now));
}

inline std::string name_of(const testing::TestParamInfo<Scene> &info)
{
    return info.param.name;
}

} // namespace scene

#endif

# Thousands of requests that overlap, each in a process or a thread of its own.
#
# Source: Anderson's "Get Your Thread Off of My Fork". See README.md in this folder.
use strict;
use warnings;
use Config;
use Fcntl qw(O_WRONLY O_CREAT O_APPEND);
use Getopt::Long;
use JSON::PP;
use POSIX       qw(strftime);
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC);

use constant RESPONSE => 512;

sub now_ns {
    return sprintf '%.0f', clock_gettime(CLOCK_MONOTONIC) * 1e9;
}

# Of threads, which share nothing but this.
my $formatter = 0;

sub write_response {
    my ( $output, $id, $begun_ns, $is_thread ) = @_;
    my $time;
    {
        lock($formatter) if $is_thread;
        $time = strftime( '%Y-%m-%d %H:%M:%S', localtime );
    }
    my $head = sprintf '<response id="%d" begun_ns="%s" ended_ns="%s"><time>%s</time><body>',
        $id, $begun_ns, now_ns(), $time;
    my $tail = "</body></response>\n";
    my $text = $head . '.' x ( RESPONSE - length($head) - length($tail) ) . $tail;
    die "not written: $!" if ( syswrite( $output, $text ) // 0 ) != RESPONSE;
    return;
}

sub forks {
    my ( $count, $output, $wait_s ) = @_;
    for my $id ( 0 .. $count - 1 ) {
        my $begun_ns = now_ns();
        my $pid      = fork // die "no more than $id processes can be made: $!\n";
        if ( !$pid ) {
            sleep $wait_s;
            write_response( $output, $id, $begun_ns, 0 );
            POSIX::_exit(0);
        }
    }
    for ( 1 .. $count ) {
        wait;
        die 'a child failed' if $?;
    }
    return;
}

sub respond {
    my ( $output, $id, $begun_ns, $wait_s ) = @_;
    sleep $wait_s;
    write_response( $output, $id, $begun_ns, 1 );
    return 1;
}

sub threads_of {
    my ( $count, $output, $wait_s ) = @_;
    threads::shared::share( \$formatter );
    my @several;
    for my $id ( 0 .. $count - 1 ) {
        my $one = threads->create( { stack_size => 64 * 1024 },
            \&respond, $output, $id, now_ns(), $wait_s );
        die "no more than $id threads can be made\n" if !$one;
        push @several, $one;
    }
    for (@several) {
        die 'a thread failed' if !$_->join;
    }
    return;
}

my ( $mode, $workers, $wait_s, $file ) = ( 'thread', 100, 1.0, '/dev/null' );
GetOptions(
    'mode=s'    => \$mode,
    'workers=i' => \$workers,
    'wait=f'    => \$wait_s,
    'output=s'  => \$file
) or exit 2;
my $lacks = $mode eq 'thread' && !$Config{useithreads} && 'this Perl has no threads';
$lacks ||= $mode !~ /^(?:thread|fork)$/ && 'Perl has processes and threads';
if ($lacks) {
    print encode_json( { lacks => $lacks } ), "\n";
    exit 3;
}
if ( $mode eq 'thread' ) {
    require threads;
    require threads::shared;
}
sysopen( my $output, $file, O_WRONLY | O_CREAT | O_APPEND ) or die "$file: $!";
my $begun = clock_gettime(CLOCK_MONOTONIC);
if   ( $mode eq 'fork' ) { forks( $workers, $output, $wait_s ) }
else                     { threads_of( $workers, $output, $wait_s ) }
print encode_json( { elapsed_s => clock_gettime(CLOCK_MONOTONIC) - $begun } ), "\n";
